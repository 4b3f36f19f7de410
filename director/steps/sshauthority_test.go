package steps

import (
	"slices"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// TestSSHAuthorityChanges changes the authority of a node with a real SSH server: the director gets in at each stage,
// whether the node has its file of that stage yet or not, and with the former authority it does not at the end.
func TestSSHAuthorityChanges(t *testing.T) {
	t.Parallel()
	env := sshEnv(t)
	n := env.born(t, "c1", "m1")
	key, err := env.HostKey(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	opens := func(stage string, env Env, want bool) {
		t.Helper()
		_, err := n.as(env).CloudInit(t.Context(), localMachine("m1").Machine.Row(), key.Public)
		if (err == nil) != want {
			t.Errorf("%s: %v", stage, err)
		}
	}
	former := env
	former.Secrets = vault{}
	for name, sealed := range env.Secrets.(vault) {
		former.Secrets.(vault)[name] = sealed
	}
	for _, stage := range []struct {
		do   step.SigningVerb
		key  string
		want string
	}{
		{step.SigningAdd, "key2", "key1 key2 |"},
		{step.SigningUse, "key2", "key2 key1 |"},
		{step.SigningDrop, "", "key2 | key1"},
	} {
		for range 2 { // each may be cut off and run again
			p := step.SigningParams{UID: "c1", Cluster: "demo", Do: stage.do, Key: stage.key}
			if err := env.keys().changeSSHAuthority(t.Context(), plan.Run{}, p); err != nil {
				t.Fatal(err)
			}
			keys, gone, err := env.SSHAuthorities(t.Context(), "c1")
			if got := strings.Join(slices.Concat(keys, []string{"|"}, gone), " "); err != nil || got != stage.want {
				t.Errorf("%s: %s, %v", stage.do, got, err)
			}
		}
		opens("before the node has the file of "+string(stage.do), env, true)
		s, err := env.sshAuthorities(t.Context(), "c1")
		if err != nil {
			t.Fatal(err)
		}
		n.put(t, "etc/ssh/kaas/user_ca.pub", s.public(), 0o644)
		opens(string(stage.do), env, true)
		opens("the former authority after "+string(stage.do), former, stage.do != step.SigningDrop)
	}
	p := step.SigningParams{UID: "c1", Cluster: "demo", Do: step.SigningUse, Key: "key1"}
	if err := env.keys().changeSSHAuthority(t.Context(), plan.Run{}, p); director.KindOf(err) != director.KindConflict {
		t.Errorf("an authority that is gone: %v", err)
	}
	secrets, err := env.SSH().PrivateKeys(t.Context(), "c1")
	if err != nil || len(secrets) != 1 {
		t.Errorf("%d lasting keys, %v", len(secrets), err)
	}
}
