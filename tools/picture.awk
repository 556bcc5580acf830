# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Draws docs/demo.svg from what the demo prints. To draw it anew:
#   sudo target/release/plimsoll demo | awk -f tools/picture.awk >docs/demo.svg
# Times and sizes are the demo's own; between two sizes that it prints the picture has a straight line.

function x(s) { return 64 + s * 185 }
function y(mib) { return 340 - mib }
function point(s, mib) { return sprintf("%.1f,%.1f ", x(s), y(mib)) }
function area(class, points) { printf "<polygon class=\"%s\" points=\"%s\"/>\n", class, points }
function text(s, mib, anchor, words) {
	printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x(s), y(mib), anchor, words
}
function level(class, mib, words) {
	printf "<path class=\"%s\" d=\"M%.1f %.1fH%.1f\"/>\n", class, x(0), y(mib), x(stop)
	text(0.03, mib + 5, "start", words)
}
function kill(s, mib, words) {
	printf "<path class=\"kill\" d=\"M%.1f %.1fV%.1f\"/>\n", x(s), y(mib - 5), y(0)
	text(s + 0.03, mib, "end", words)
}

/ The line is drawn at / { line = $8; soft = $13; hog = point($1, 0) }
/ the guard counts / { counts = $0; sub(/.* counts +/, "", counts); hog = hog point($1, counts + 0) }
/ Its next step crosses / { killed = $1; hog = hog point($1, line) point($1, 0) }
/ The signal came / && !came { came = $5 " " $6; back = $11 " " $12 " were back " $15 " " $16 }
/ and sleeps; process / { sleeps = $1; sleeper = $7 }
/ the crosser crosses/ { crossed = $1; crosser = $4 }
/ has gone on to / { ends = $1 }

END {
	if (!line || !killed || !came || !sleeper || !crosser || !ends) {
		print "picture: this is not what 'plimsoll demo' prints" >"/dev/stderr"
		exit 1
	}
	stop = ends + 0.3
	printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d 372\" font-family=\"sans-serif\" font-size=\"13\">\n", x(stop) + 12
	print "<style>"
	print "rect { fill: #fff } text { fill: #222 } path { fill: none; stroke: #888 }"
	print ".hog { fill: #9db8d8 } .sleeper { fill: #b9d4b0 } .crosser { fill: #e8cc96 }"
	print ".line { stroke: #b03030; stroke-width: 2 } .soft { stroke: #b03030; stroke-dasharray: 5 4 } .kill { stroke: #b03030 }"
	print "@media (prefers-color-scheme: dark) {"
	print "rect { fill: #16181c } text { fill: #e4e4e4 }"
	print ".hog { fill: #35547c } .sleeper { fill: #3f5f38 } .crosser { fill: #77591f }"
	print ".line, .soft, .kill { stroke: #f07070 } }"
	print "</style>"
	print "<rect width=\"100%\" height=\"100%\"/>"
	area("hog", hog)
	area("sleeper", point(sleeps, 0) point(sleeps, sleeper) point(crossed, sleeper) point(crossed, 0))
	area("crosser", point(sleeps, sleeper) point(crossed, line) point(crossed, sleeper))
	area("crosser", point(crossed, 0) point(crossed, crosser) point(stop, crosser) point(stop, 0))
	for (mib = 0; mib <= line; mib += 64) {
		text(-0.04, mib - 4, "end", mib " MiB")
	}
	for (s = 0; s <= stop; s++) {
		text(s, -20, "middle", s " s")
	}
	printf "<path d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", x(0), y(line), y(0), x(stop)
	level("soft", soft, "soft limit: the guard is ready")
	level("line", line, "the user's line")
	kill(killed, line + 24, "demo-hog crosses: killed after " came ", " back " later")
	kill(crossed, line + 44, "demo-crosser crosses: the largest, demo-sleeper, is killed")
	text(killed - 0.05, 20, "end", "demo-hog")
	text((sleeps + crossed) / 2, sleeper / 2 - 4, "middle", "demo-sleeper")
	text(crossed - 0.03, sleeper + 12, "end", "demo-crosser")
	print "</svg>"
}
