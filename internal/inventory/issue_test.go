package inventory_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/inventory/identifier"
)

// form leaves to the resource what it knows.
func form() identifier.Form {
	return identifier.Form{City: "520100", Industry: "I65", Enterprise: "91350100M000100Y43", ResourceType: "IC", DataCenter: "GUIAN01", ServiceType: "CL", Network: "R400G"}
}

func TestIssue(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.create(t, ctx, compute("g1", ""), compute("g2", ""), platform("p1", ""))
		x, err := w.Issue(ctx, "g1", form(), "zone-a")
		must(t, err)
		if want := "CI1-520100-I65-91350100M000100Y43-IC-GUIAN01-CL-H989T-0-R400G-GPU-SNG1-"; !strings.HasPrefix(x.Identifier, want) || x.Zone != "zone-a" || !x.IssuedAt.Equal(w.clock.now()) {
			t.Errorf("identifier = %+v, want it to begin with %s", x, want)
		}
		same(t, "identifier of the resource", w.get(t, ctx, "g1").Identifier, x.Identifier)
		w.clock.advance(time.Second)
		w.reopen(t)
		again, err := w.Issue(ctx, "g1", form(), "zone-a")
		must(t, err)
		if again.Code != x.Code || !again.IssuedAt.Equal(x.IssuedAt) {
			t.Errorf("issued again: %+v, want what was issued", again)
		}
		_, err = w.Issue(ctx, "g1", form(), "zone-b")
		wantKind(t, "of another zone", err, fault.Conflict)
		f := form()
		f.ChipNumber = "SNG1"
		_, err = w.Issue(ctx, "g2", f, "zone-a")
		wantKind(t, "of the same chip", err, fault.Exists)
		f.DataCenter = "ELSEWHERE"
		_, err = w.Issue(ctx, "g2", f, "zone-a")
		wantKind(t, "of the same chip elsewhere", err, fault.Exists)

		_, err = w.Issue(ctx, "p1", identifier.Form{}, "")
		wantPaths(t, "nothing", err, "form.city", "form.industry", "form.enterprise", "form.resource_type", "form.data_center", "form.service_type", "form.chip_type", "form.chip_number", "availability_zone")
		_, err = w.Issue(ctx, "nope", form(), "z")
		wantKind(t, "no such resource", err, fault.NotFound)
		_, err = w.Issue(member(ctx, "t1"), "g2", form(), "z")
		wantKind(t, "of everyone's resource by a member", err, fault.Denied)
		r := w.get(t, ctx, "g2")
		r.State = inventory.Retired
		_, err = w.Update(ctx, r)
		must(t, err)
		_, err = w.Issue(ctx, "g2", form(), "z")
		wantKind(t, "of a retired resource", err, fault.Conflict)
	})
}

func TestVerify(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		keys, err := w.Keys(ctx)
		must(t, err)
		same(t, "keys before the first identifier", len(keys), 0)
		mine := compute("g1", "")
		mine.TenantID = "t1"
		w.create(t, ctx, mine, compute("g2", ""))
		x, err := w.Issue(member(ctx, "t1"), "g1", form(), "zone-a")
		must(t, err)
		other, err := w.Issue(ctx, "g2", form(), "zone-a")
		must(t, err)
		verify := func(ctx context.Context, id, code string) inventory.Verification {
			t.Helper()
			v, err := w.Verify(ctx, id, code)
			must(t, err)
			return v
		}
		v := verify(ctx, " "+strings.ToLower(x.Identifier)+" ", x.Code)
		if v.Problem != "" || v.Standing != inventory.Valid || !v.CodeValid || v.CodeProblem != "" || v.Issued == nil || v.Issued.ResourceID != "g1" || v.Form.ChipNumber != "SNG1" {
			t.Errorf("verification = %+v", v)
		}
		if v := verify(member(ctx, "t2"), x.Identifier, ""); v.Standing != inventory.Valid || v.Issued != nil || v.CodeValid {
			t.Errorf("as another tenant sees it: %+v", v)
		}
		typo := strings.Replace(x.Identifier, "GUIAN01", "GUIAN10", 1)
		if v := verify(ctx, typo, x.Code); !strings.Contains(v.Problem, "check characters") || v.Standing != inventory.UnknownHere || v.CodeValid {
			t.Errorf("with a typing mistake: %+v", v)
		}
		f := x.Form
		f.ChipNumber = "NEVERSEEN"
		if v := verify(ctx, f.String(), ""); v.Problem != "" || v.Standing != inventory.UnknownHere {
			t.Errorf("never issued: %+v", v)
		}
		parts := strings.Split(x.Code, ".")
		forged := func(header, claims string) string {
			_, key, err := ed25519.GenerateKey(nil)
			must(t, err)
			body := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
			return body + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(body)))
		}
		header, err := base64.RawURLEncoding.DecodeString(parts[0])
		must(t, err)
		claims, err := base64.RawURLEncoding.DecodeString(parts[1])
		must(t, err)
		for code, want := range map[string]string{
			"junk": "not a registration code", "a.b.c": "not a registration code", strings.Repeat("x", 5000): "not a registration code", other.Code: "the code of " + other.Identifier,
			parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(claims), "zone-a", "zone-b", 1))) + "." + parts[2]: "signature is wrong",
			forged(string(header), string(claims)):                                                 "signature is wrong",
			forged(`{"alg":"none","kid":"x","typ":"compute-identifier+jws"}`, string(claims)):      "not a registration code",
			forged(`{"alg":"EdDSA","kid":"other","typ":"compute-identifier+jws"}`, string(claims)): "not of this platform",
			parts[0] + "." + parts[1] + ".":                                                        "signature is wrong",
		} {
			if v := verify(ctx, x.Identifier, code); v.CodeValid || !strings.Contains(v.CodeProblem, want) {
				t.Errorf("code %.60s: valid %v, %q, want %q", code, v.CodeValid, v.CodeProblem, want)
			}
		}

		// Anyone can check a code with the public key alone.
		keys, err = w.Keys(ctx)
		must(t, err)
		sig, err := base64.RawURLEncoding.DecodeString(parts[2])
		must(t, err)
		var said map[string]any
		must(t, json.Unmarshal(claims, &said))
		if len(keys) != 1 || !ed25519.Verify(keys[0].Public, []byte(parts[0]+"."+parts[1]), sig) || said["sub"] != x.Identifier || said["availability_zone"] != "zone-a" {
			t.Errorf("keys %v, claims %v", keys, said)
		}
	})
}

func TestRevoke(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.create(t, ctx, compute("g1", ""), compute("g2", ""))
		first, err := w.Issue(ctx, "g1", form(), "zone-a")
		must(t, err)
		_, err = w.Revoke(ctx, first.Identifier, "")
		wantPaths(t, "without a reason", err, "reason")
		_, err = w.Revoke(ctx, "CI1-nope", "x")
		wantKind(t, "unknown", err, fault.NotFound)
		_, err = w.Revoke(member(ctx, "t1"), first.Identifier, "x")
		wantKind(t, "by a member", err, fault.Denied)

		w.clock.advance(time.Second)
		got, err := w.Revoke(ctx, strings.ToLower(first.Identifier), "sold")
		must(t, err)
		if !got.RevokedAt.Equal(w.clock.now()) || got.Reason != "sold" {
			t.Errorf("revoked = %+v", got)
		}
		again, err := w.Revoke(ctx, first.Identifier, "other reason")
		must(t, err)
		same(t, "reason after revoking again", again.Reason, "sold")
		v, err := w.Verify(ctx, first.Identifier, first.Code)
		must(t, err)
		if v.Standing != inventory.Revoked || v.Issued == nil || v.Issued.Reason != "sold" {
			t.Errorf("verification = %+v", v)
		}
		same(t, "identifier of the resource", w.get(t, ctx, "g1").Identifier, "")

		// The same facts have the same identifier, issued anew.
		second, err := w.Issue(ctx, "g1", form(), "zone-b")
		must(t, err)
		same(t, "identifier issued again", second.Identifier, first.Identifier)
		for code, want := range map[string]bool{first.Code: false, second.Code: true} {
			if v, err := w.Verify(ctx, first.Identifier, code); err != nil || v.Standing != inventory.Valid || v.CodeValid != want {
				t.Errorf("verification = %+v, %v, want the code valid: %v", v, err, want)
			}
		}
		// Deleting revokes.
		must(t, w.Delete(ctx, "g1", 0))
		v, err = w.Verify(ctx, first.Identifier, "")
		must(t, err)
		if v.Standing != inventory.Revoked || !strings.Contains(v.Issued.Reason, "deleted") {
			t.Errorf("after deletion: %+v", v)
		}

		_, err = w.Issue(ctx, "g2", form(), "zone-a")
		must(t, err)
		var all []string
		token := ""
		for {
			rows, next, err := w.ListIdentifiers(ctx, "", 1, token)
			must(t, err)
			for _, r := range rows {
				all = append(all, fmt.Sprint(r.ResourceID, " ", r.Zone, " ", !r.RevokedAt.IsZero()))
			}
			if token = next; token == "" {
				break
			}
		}
		same(t, "all", all, []string{"g1 zone-a true", "g1 zone-b true", "g2 zone-a false"})
		rows, _, err := w.ListIdentifiers(ctx, "g2", 0, "")
		must(t, err)
		same(t, "of one resource", len(rows), 1)
		_, _, err = w.ListIdentifiers(ctx, "a b", 0, "")
		wantKind(t, "bad ID", err, fault.Invalid)
		_, _, err = w.ListIdentifiers(ctx, "", 0, "junk")
		wantKind(t, "bad token", err, fault.Invalid)
	})
}

// Two resources want one chip's identifier at once: one gets it.
func TestIssueConcurrently(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		const n = 6
		for i := range n {
			r := compute(fmt.Sprint("g", i), "")
			r.Attributes["serial_number"] = "SAME"
			w.create(t, ctx, r)
		}
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { _, errs[i] = w.Issue(ctx, fmt.Sprint("g", i), form(), "z") })
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if k := fault.KindOf(err); k != fault.Exists && k != fault.Conflict {
				t.Errorf("loser: %v", err)
			}
		}
		keys, err := w.Keys(ctx)
		if err != nil || won != 1 || len(keys) != 1 {
			t.Errorf("%d of %d won, %d keys, %v", won, n, len(keys), err)
		}
	})
}
