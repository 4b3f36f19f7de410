package cores

import (
	"runtime"
	"testing"
)

func TestOvercommitCountsCores(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	t.Setenv("GOMAXPROCS", "")
	Overcommit()
	if Count() != before || runtime.GOMAXPROCS(0) != threads*before {
		t.Errorf("%d cores, %d threads at once; there are %d cores", Count(), runtime.GOMAXPROCS(0), before)
	}
	runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "1")
	if Overcommit(); runtime.GOMAXPROCS(0) != before {
		t.Error("the environment is not obeyed")
	}
}
