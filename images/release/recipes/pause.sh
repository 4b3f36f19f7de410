#!/usr/bin/env bash
# pause: our own few lines of C, linked statically.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
"${CC:-gcc}" -Os -static -Wall -Wextra -Werror -ffile-prefix-map="$SOURCE_DIR=." -Wl,--build-id=none -s \
    -DVERSION="\"$PAUSE_VERSION\"" -o "$1/pause" "$SOURCE_DIR/pause/pause.c"
