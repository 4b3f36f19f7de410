package appliance

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/director-kaas/kaas/director"
)

// settleClock waits, before the director makes its authority, until a time server has set the clock: the authority
// begins at that time, and the first password and sessions end by it. It returns at once if no server is named or the
// director has started before. Errors: unavailable after ten seconds without a server that has the time.
func settleClock(ctx context.Context, p Place, s Setup) error {
	if _, err := os.Stat(p.data("director/tls/ca.crt")); len(s.NTP) == 0 || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// Twenty looks, half a second apart, for a clock that is off by less than a second.
	if _, err := command(ctx, nil, "chronyc", "waitsync", "20", "1", "0", "0.5"); err != nil {
		return director.Errorf(
			director.KindUnavailable, opApply, "no time server has set the clock of this VM, and the first start of "+
				"the director does not wait longer: see director setup check",
		)
	}
	return nil
}
