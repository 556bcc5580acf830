// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Takes 4 MiB piece by piece and keeps them until its input ends. Ends with 3 where it was told no.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	for (int i = 0; i < 64; i++) {
		char *piece = malloc(1 << 16);

		if (!piece)
			return 3;
		memset(piece, 1, 1 << 16);
	}
	while (getchar() != EOF)
		;
	return 0;
}
