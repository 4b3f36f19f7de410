package kube_test

import (
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/kube"
)

func testClaims(t *testing.T, admin *kube.Client) {
	ctx := t.Context()
	if c, version, err := admin.Claim(ctx); err != nil || version != "" || c != (director.Claim{}) {
		t.Fatalf("before the first claim: %+v, %q, %v", c, version, err)
	}
	first := director.Claim{Director: "d", Run: "r1", Host: "a"}
	second := director.Claim{Director: "d", Run: "r2", Host: "b"}
	if err := admin.PutClaim(ctx, first, ""); err != nil {
		t.Fatal(err)
	}
	if err := admin.PutClaim(ctx, second, ""); director.KindOf(err) != director.KindConflict {
		t.Errorf("a second first claim: %v", err)
	}
	has, version, err := admin.Claim(ctx)
	if err != nil || has != first {
		t.Fatalf("%+v, %v", has, err)
	}
	if err := admin.PutClaim(ctx, second, version); err != nil {
		t.Fatal(err)
	}
	if err := admin.PutClaim(ctx, first, version); director.KindOf(err) != director.KindConflict {
		t.Errorf("over a claim that was not seen: %v", err)
	}
	if has, _, err = admin.Claim(ctx); err != nil || has != second {
		t.Errorf("%+v, %v", has, err)
	}
}
