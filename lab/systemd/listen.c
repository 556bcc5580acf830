// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Listens for memory pressure by libsystemd, as programs do, and says how often it was told. For 20 minutes at most.
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

// Of <systemd/sd-event.h>, which this machine need not have.
typedef struct sd_event sd_event;
typedef struct sd_event_source sd_event_source;
int sd_event_default(sd_event **event);
int sd_event_add_memory_pressure(sd_event *event, sd_event_source **source, int (*told)(sd_event_source *, void *),
				 void *data);
int sd_event_run(sd_event *event, uint64_t timeout_us);

static uint64_t count;

static int on_pressure(sd_event_source *source, void *data)
{
	(void)source;
	(void)data;
	count++;
	return 0;
}

int main(void)
{
	sd_event *event = NULL;
	sd_event_source *source = NULL;
	uint64_t shown = 0;
	time_t end = time(NULL) + 1200;
	int error = sd_event_default(&event);

	if (error >= 0)
		error = sd_event_add_memory_pressure(event, &source, on_pressure, NULL);
	printf("listening %d\n", error);
	fflush(stdout);
	while (error >= 0 && time(NULL) < end) {
		error = sd_event_run(event, 1000000);
		// A number a line would fill the disk where it is told without end.
		if (count != shown && (count < 100 || count >= 2 * shown)) {
			printf("told %" PRIu64 "\n", count);
			fflush(stdout);
			shown = count;
		}
	}
	printf("ended %d\n", error);
	return error < 0;
}
