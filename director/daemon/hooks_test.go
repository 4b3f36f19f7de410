package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/discovery/consultest"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/webhook"
	"github.com/director-kaas/kaas/director/webhook/webhooktest"
	"github.com/director-kaas/kaas/director/wire"
)

// hookText is the document of a hook on the endpoint, with more of its spec.
func hookText(name string, e *webhooktest.Endpoint, more string) string {
	ca := strings.ReplaceAll(strings.TrimSpace(e.Authority.PEM), "\n", "\n      ")
	return fmt.Sprintf("apiVersion: kaas/v1\nkind: Hook\nmetadata: {name: %s}\nspec:\n  url: %s\n"+
		"  allow: [127.0.0.1/32]\n  tls:\n    ca: |\n      %s\n%s", name, e.URL, ca, more)
}

// hookEvent is what an endpoint was told of a phase.
type hookEvent struct{ Phase, Node, Status, Host, VM, Answer string }

// heardBy returns what the endpoint was told, in its order and each once, and fails for what the hook's key does not
// verify.
func heardBy(t *testing.T, api *client.Client, hook string, e *webhooktest.Endpoint) []hookEvent {
	t.Helper()
	keys, err := api.HookKeys(t.Context(), hook)
	if err != nil || len(keys.Items) != 1 {
		t.Fatalf("the keys of %s: %+v, %v", hook, keys, err)
	}
	var out []hookEvent
	ids := map[string]bool{}
	for _, r := range e.Got() {
		if err := webhook.Verify(keys.Items[0].Public, r.Header, r.Body, r.At); err != nil {
			t.Errorf("%s: %v", r.ID, err)
		}
		var event struct{ Data hookEvent }
		if err := json.Unmarshal(r.Body, &event); err != nil {
			t.Fatal(err)
		}
		if !ids[r.ID] {
			out = append(out, event.Data)
		}
		ids[r.ID] = true
	}
	return out
}

// ends follows the plan to its end.
func ends(t *testing.T, api *client.Client, id string, want plan.Status) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	status, err := api.Follow(ctx, id, 0, func(wire.Event) error { return nil }, nil, nil)
	if err != nil || status != string(want) {
		t.Fatalf("the plan ends as %q and not %q: %v", status, want, err)
	}
}

// phasesOf returns the phases of the node, in the order in which they were told.
func phasesOf(all []hookEvent, node string) (out []string) {
	for _, h := range all {
		if h.Node == node {
			out = append(out, h.Phase)
		}
	}
	return out
}

// refuses answers that a plan may continue, except at the phase of the node while it is asked to.
func refuses(e **webhooktest.Endpoint, phase, node string, now *atomic.Bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		decision := director.HookContinues
		for _, got := range (*e).Got() {
			var event struct{ Data hookEvent }
			if got.ID == r.Header.Get("Webhook-Id") && json.Unmarshal(got.Body, &event) == nil && now.Load() &&
				event.Data.Phase == phase && event.Data.Node == node {
				decision = director.HookRefuses
			}
		}
		webhooktest.JSON(200, fmt.Sprintf(`{"decision":%q,"reason":"a freeze"}`, decision))(w, r)
	}
}

// The whole director asks a real endpoint before and after all that it does to workers in an upgrade, and tells another
// one of the plan. A refusal in the middle of a window has its node rolled back; the next plan goes on from there.
func TestAnUpgradeAsksItsHooks(t *testing.T) {
	t.Parallel()
	_, api := created(t, simulating(t, threeHosts))
	var freeze atomic.Bool
	freeze.Store(true)
	authority := webhooktest.NewAuthority(t)
	var asked *webhooktest.Endpoint
	asked = webhooktest.Start(t, "127.0.0.1:0", authority, false,
		refuses(&asked, "before.upgrade", "demo-w-2", &freeze))
	told := webhooktest.Start(t, "127.0.0.1:0", authority, false, webhooktest.JSON(200, ""))
	phases := "  phases: [" + strings.Join(model.HookPhases()[2:], ", ") + "]\n"
	text := hookText("asked", asked, phases+"  select: {roles: [worker]}\n  onRefuse: fail\n") + "---\n" +
		hookText("told", told, "  phases: [before.plan, after.plan]\n  mode: notify\n") + "---\n" + nextRelease()
	if err := applied(t.Context(), api, text); err != nil {
		t.Fatal(err)
	}

	begin := func(want plan.Status) string {
		t.Helper()
		p, err := api.MakePlan(t.Context(), "demo", plan.Request{})
		if err != nil {
			t.Fatal(err)
		}
		wantShown(t, p)
		if _, err := api.StartPlan(t.Context(), p.ID, p.Hash); err != nil {
			t.Fatal(err)
		}
		ends(t, api, p.ID, want)
		return p.ID
	}
	wantVersions(t, api, begin(plan.StatusFailed), map[string]string{
		"demo-w-1": "v1.37.2", "demo-w-2": "v1.37.1", "demo-w-3": "v1.37.1",
	})
	whole := []string{
		"before.lock", "before.drain", "after.drain", "after.lock", "before.upgrade", "after.upgrade", "before.verify",
		"after.verify", "before.unlock", "after.unlock",
	}
	all := heardBy(t, api, "asked", asked)
	for node, want := range map[string][]string{"demo-w-1": whole, "demo-w-2": whole[:5], "demo-w-3": nil} {
		if diff := cmp.Diff(want, phasesOf(all, node)); diff != "" {
			t.Errorf("%s: %s", node, diff)
		}
	}
	freeze.Store(false)
	begun := len(all)
	wantVersions(t, api, begin(plan.StatusDone), map[string]string{
		"demo-w-1": "v1.37.2", "demo-w-2": "v1.37.2", "demo-w-3": "v1.37.2",
	})
	all = heardBy(t, api, "asked", asked)
	for node, want := range map[string][]string{"demo-w-1": nil, "demo-w-2": whole, "demo-w-3": whole} {
		if diff := cmp.Diff(want, phasesOf(all[begun:], node)); diff != "" {
			t.Errorf("%s, in the second plan: %s", node, diff)
		}
	}
	for _, h := range all {
		if h.Node != "" && (h.Host == "" || h.VM == "" || !strings.HasSuffix(h.Answer, "/answer")) {
			t.Errorf("%s of %s is on the VM %q of host %q, and answers go to %q", h.Phase, h.Node, h.VM,
				h.Host, h.Answer)
		}
	}
	wantTold(t, api, told, "before.plan running", "after.plan failed", "before.plan running", "after.plan running")
}

// wantShown wants the plan to show before its start what it asks.
func wantShown(t *testing.T, p wire.Plan) {
	t.Helper()
	var asks, tells int
	for _, s := range p.Steps {
		if s.Kind != string(step.HookAsk) {
			continue
		}
		said := fmt.Sprint(s.Title, s.Effects)
		if strings.Contains(said, "asked") {
			asks++
		}
		if strings.Contains(said, "told") {
			tells++
		}
	}
	if asks == 0 || tells != 2 {
		t.Errorf("it shows %d questions and %d things that are told", asks, tells)
	}
}

func wantVersions(t *testing.T, api *client.Client, planID string, want map[string]string) {
	t.Helper()
	v, err := api.Nodes(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range v.Items {
		if n.Role == "worker" {
			got[n.Name] = n.Version
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after the plan %s: %s", planID, diff)
	}
}

// wantTold waits until the endpoint was told these phases and statuses of plans.
func wantTold(t *testing.T, api *client.Client, e *webhooktest.Endpoint, want ...string) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var got []string
		for _, h := range heardBy(t, api, "told", e) {
			got = append(got, h.Phase+" "+h.Status)
		}
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("it was told %q, and should be %q", got, want)
		}
	}
}

// Who may not move a plan gives no answer to what it asks, and who may not see it is not told that it asks. The service
// account that the hook names posts its answer to the address of the event, as the manual says.
func TestWhoAnswersAHook(t *testing.T) {
	t.Parallel()
	c := simulating(t, grantDocuments)
	c.Listen = fmt.Sprintf("127.0.0.1:%d", consultest.FreePorts(t, 1)[0]) // which events name
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, admin := t.Context(), connect(t, c, d)
	later := webhooktest.Start(t, "127.0.0.1:0", webhooktest.NewAuthority(t), false, webhooktest.JSON(202, ""))
	ann := person(t, c, d, admin, "ann", director.RoleNone)
	bob := person(t, c, d, admin, "bob", director.RoleNone)
	reader := person(t, c, d, admin, "reader", director.RoleUser)
	_, err = admin.CreateUser(ctx, wire.NewUser{Name: "cmdb", Role: string(director.RoleOperator), Service: true})
	if err != nil {
		t.Fatal(err)
	}
	token, err := admin.CreateAPIToken(ctx, "cmdb", wire.NewToken{Name: "answers"})
	if err != nil {
		t.Fatal(err)
	}
	other := strings.NewReplacer("name: web}", "name: other}", "ROLE", "admin", "project: web", "project: other")
	for _, text := range []string{
		other.Replace(grantWeb), grantShop,
		hookText("later", later, "  phases: [before.plan]\n  answeredBy: [cmdb]\n"),
	} {
		if err := applied(ctx, admin, text); err != nil {
			t.Fatal(err)
		}
	}
	p, err := admin.MakePlan(ctx, "shop", plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.StartPlan(ctx, p.ID, p.Hash); err != nil {
		t.Fatal(err)
	}
	id := waitingDelivery(t, admin)
	yes, no := wire.HookAnswer{Decision: "continue"}, wire.HookAnswer{Decision: "refuse"}
	wantKind(t, "who may not see the plan", second(ann.AnswerHookDelivery(ctx, id, yes)), director.KindNotFound)
	if list, err := ann.HookDeliveries(ctx, "", "", false, 10); err != nil || len(list.Items) != 0 {
		t.Errorf("who may not see the plan sees %+v, %v", list, err)
	}
	wantKind(t, "who may only read", second(reader.AnswerHookDelivery(ctx, id, yes)), director.KindForbidden)
	_, err = bob.AnswerHookDelivery(ctx, id, yes)
	wantKind(t, "whom the hook does not name", err, director.KindForbidden, "spec.answeredBy")
	answers(t, c, heardBy(t, admin, "later", later)[0].Answer, token.Token)
	ends(t, admin, p.ID, plan.StatusDone)
	if list, err := bob.HookDeliveries(ctx, "", p.ID, false, 10); err != nil || len(list.Items) != 1 ||
		list.Items[0].AnsweredBy != "cmdb" || list.Items[0].Reason != "ticket 4711" {
		t.Errorf("the delivery is %+v, %v", list, err)
	}
	wantKind(t, "another decision", second(bob.AnswerHookDelivery(ctx, id, no)), director.KindForbidden)
	wantKind(t, "the same by who may not see it", second(ann.AnswerHookDelivery(ctx, id, yes)), director.KindNotFound)
}

// answers posts an answer as the manual says.
func answers(t *testing.T, c Config, address, token string) {
	t.Helper()
	header := filepath.Join(t.TempDir(), "header")
	if err := os.WriteFile(header, []byte("Authorization: Bearer "+token), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(
		t.Context(), "curl", "-sS", "--fail-with-body", "--cacert", filepath.Join(c.StateDir, "tls", "ca.crt"), "-H",
		"@"+header, "--json", `{"decision": "continue", "reason": "ticket 4711"}`, address,
	).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// waitingDelivery waits until a plan waits for an answer, and returns the id of what it asks.
func waitingDelivery(t *testing.T, api *client.Client) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		list, err := api.HookDeliveries(ctx, "", "", true, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) == 1 && list.Items[0].State == string(director.HookAccepted) {
			return list.Items[0].ID
		}
	}
}
