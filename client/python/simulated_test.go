package python

import (
	"testing"

	"github.com/director-kaas/kaas/client/clienttest"
)

func TestMain(m *testing.M) { clienttest.Main(m) }

// The client does against a director what its own tests say.
func TestClient(t *testing.T) {
	t.Parallel()
	d := clienttest.Start(t, "../..")
	t.Log(d.Run(t, ".", nil, "python3", "-W", "error", "-m", "unittest", "-v", "test_director_client.Simulated"))
}

// The client upgrades a director that runs on an appliance.
func TestAppliance(t *testing.T) {
	t.Parallel()
	d := clienttest.StartAppliance(t, "../..")
	t.Log(d.Run(t, ".", nil, "python3", "-W", "error", "-m", "unittest", "-v", "test_director_client.Appliance"))
}
