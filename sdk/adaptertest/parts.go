package adaptertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// partChecks are of what a driver claims by a part.
var partChecks = []check{
	{"account/kept", needsAccount, accountKept},
	{"account/unknown", needsAccount, accountUnknown},
	{"account/remove", needsAccount, accountRemove},
	{"volume/kept", needsStorage, volumeKept},
	{"volume/names", needsStorage, volumeNames},
	{"volume/shared", needsStorage | needsShell, volumeShared},
	{"volume/unknown", needsStorage, volumeUnknown},
	{"volume/remove", needsStorage | needsShell, volumeRemove},
}

const (
	smallVolume  = 16 << 20
	largerVolume = 24 << 20
)

// parts are the parts a check can need.
var parts = map[need]adapterv1.Part{needsAccount: adapterv1.Part_PART_ACCOUNT, needsStorage: adapterv1.Part_PART_STORAGE, needsNode: adapterv1.Part_PART_RESOURCE}

// partsUnclaimed: what Describe does not claim is not there.
func (e *env) partsUnclaimed() {
	e.Helper()
	claimed := e.describe().Parts
	ctx, cancel := e.call()
	defer cancel()
	calls := map[string]struct {
		part adapterv1.Part
		call func() error
	}{
		"ListAccounts": {adapterv1.Part_PART_ACCOUNT, func() error {
			_, err := e.client.ListAccounts(ctx, &adapterv1.ListAccountsRequest{})
			return err
		}},
		"EnsureAccount": {adapterv1.Part_PART_ACCOUNT, func() error {
			_, err := e.client.EnsureAccount(ctx, &adapterv1.EnsureAccountRequest{TenantId: "t"})
			return err
		}},
		"ListVolumes": {adapterv1.Part_PART_STORAGE, func() error {
			_, err := e.client.ListVolumes(ctx, &adapterv1.ListVolumesRequest{})
			return err
		}},
		"EnsureVolume": {adapterv1.Part_PART_STORAGE, func() error {
			_, err := e.client.EnsureVolume(ctx, &adapterv1.EnsureVolumeRequest{VolumeId: "v", Bytes: smallVolume})
			return err
		}},
		"SetNode": {adapterv1.Part_PART_RESOURCE, func() error {
			_, err := e.client.SetNode(ctx, &adapterv1.SetNodeRequest{Name: "no-such-node"})
			return err
		}},
	}
	for what, c := range calls {
		if !slices.Contains(claimed, c.part) {
			e.wantCode(c.call(), fmt.Sprintf("%s, while Describe does not claim %v,", what, c.part), connect.CodeUnimplemented)
		}
	}
}

// refused applies an attempt that must be refused, with a reason that names why.
func (e *env) refused(a *adapterv1.Attempt, what, named string) {
	e.Helper()
	res, err := e.tryApply(a)
	if err != nil {
		e.Fatalf("Apply of an attempt with %s: %v; want it refused by name, which keeps the others of the call", what, err)
	}
	if len(res.Refusals) != 1 || res.Refusals[0].AttemptId != a.AttemptId {
		e.Errorf("Apply accepted an attempt with %s, or refused another: %v; want one refusal of %s", what, res.Refusals, a.AttemptId)
		return
	}
	if !strings.Contains(res.Refusals[0].Reason, named) {
		e.Errorf("the refusal of an attempt with %s says %s, which does not name %q", what, clip(res.Refusals[0].Reason), named)
	}
}

func (e *env) ensureAccount(tenant, name string) *adapterv1.Account {
	e.Helper()
	ctx, cancel := e.call()
	defer cancel()
	res, err := e.client.EnsureAccount(ctx, &adapterv1.EnsureAccountRequest{TenantId: tenant, Name: name})
	if err != nil {
		e.Fatalf("EnsureAccount of tenant %q: %v", tenant, err)
	}
	if n := res.GetAccount().GetName(); n == "" || len(n) > 64 || name != "" && n != name {
		e.Fatalf("EnsureAccount of tenant %q with name %q answers with account %q; want a name of 1 to 64 bytes, the one asked for", tenant, name, n)
	}
	return res.Account
}

func (e *env) removeAccount(tenant, name string) error {
	ctx, cancel := e.call()
	defer cancel()
	_, err := e.client.RemoveAccount(ctx, &adapterv1.RemoveAccountRequest{TenantId: tenant, Name: name})
	return err
}

func (e *env) accounts() map[string]*adapterv1.Account {
	e.Helper()
	ctx, cancel := e.call()
	defer cancel()
	res, err := e.client.ListAccounts(ctx, &adapterv1.ListAccountsRequest{})
	if err != nil {
		e.Fatalf("ListAccounts: %v", err)
	}
	out := map[string]*adapterv1.Account{}
	for _, a := range res.Accounts {
		if out[a.Name] != nil {
			e.Errorf("ListAccounts names %q twice", a.Name)
		}
		out[a.Name] = a
	}
	return out
}

// tenant makes one whose account goes when the check ends.
func (e *env) tenant() (tenant, account string) {
	e.Helper()
	tenant = strings.ToLower(newID("t"))[:12]
	account = e.ensureAccount(tenant, "").Name
	e.undo = append(e.undo, func() { _ = e.removeAccount(tenant, account) }) // it may be gone, or in use to the end
	return tenant, account
}

// accountKept: one tenant, one account, whatever is asked again.
func accountKept(e *env) {
	tenant, name := e.tenant()
	_, other := e.tenant()
	if other == name {
		e.Errorf("two tenants have the account %q; each must have its own", name)
	}
	for _, when := range []string{"asked again", "asked after a restart"} {
		if got := e.ensureAccount(tenant, "").Name; got != name {
			e.Errorf("EnsureAccount of one tenant answers %q, and %s %q; want the same every time", name, when, got)
		}
		if a := e.accounts()[name]; a == nil || a.TenantId != tenant {
			e.Errorf("%s, ListAccounts has {%v} for account %q; want it, with tenant %q, for which it was made", when, a, name, tenant)
		}
		e.restart()
	}
	o := e.observe()
	a := e.attempt(e.c.Commands.Exit(0))
	a.TenantId, a.Account = tenant, name
	e.apply(a)
	o.endedBy(a.AttemptId, "completed")
}

func accountUnknown(e *env) {
	a := e.attempt(e.c.Commands.Exit(0))
	a.Account = "no-such-account"
	e.refused(a, "an account that is not there", a.Account)
}

// accountRemove: not while runs of it go on, and only what was made for the tenant.
func accountRemove(e *env) {
	tenant, name := e.tenant()
	_, other := e.tenant()
	o := e.observe()
	a := e.attempt(e.c.Commands.Wait)
	a.TenantId, a.Account = tenant, name
	e.apply(a)
	o.running(a.AttemptId)
	e.wantCode(e.removeAccount(tenant, name), "RemoveAccount while a run of the account goes on", connect.CodeFailedPrecondition)
	if err := e.removeAccount(tenant, other); err != nil {
		e.Errorf("RemoveAccount of one that was made for another tenant: %v; want it left, without an error", err)
	}
	e.stop(a.AttemptId)
	o.endedBy(a.AttemptId, "stopped")
	for _, when := range []string{"", ", again"} {
		var err error
		if !e.within(e.c.Patience, func() bool { err = e.removeAccount(tenant, name); return err == nil }) {
			e.Errorf("RemoveAccount%s: %v; want success once its runs have ended, and ever after", when, err)
		}
	}
	all := e.accounts()
	if all[name] != nil || all[other] == nil {
		e.Errorf("after RemoveAccount of %q ListAccounts has it: %v; and %q of another tenant: %v; want the latter only", name, all[name] != nil, other, all[other] != nil)
	}
}

func (e *env) tryVolume(id string, bytes int64) (*adapterv1.Volume, error) {
	ctx, cancel := e.call()
	defer cancel()
	res, err := e.client.EnsureVolume(ctx, &adapterv1.EnsureVolumeRequest{VolumeId: id, Bytes: bytes, TenantId: "default"})
	return res.GetVolume(), err
}

// volume makes one that goes when the check ends, or another size of it.
func (e *env) volume(id string, bytes int64) *adapterv1.Volume {
	e.Helper()
	v, err := e.tryVolume(id, bytes)
	if err != nil {
		e.Fatalf("EnsureVolume(%s, %d bytes): %v", id, bytes, err)
	}
	if v.GetVolumeId() != id || v.Bytes < bytes {
		e.Fatalf("EnsureVolume(%s, %d bytes) answers {%v}; want that volume, of at least that size", id, bytes, v)
	}
	return v
}

func (e *env) newVolume() string {
	e.Helper()
	id := newID("vol")
	e.volume(id, smallVolume)
	e.undo = append(e.undo, func() {
		// What has it is stopped first.
		if all := e.mine(); len(all) > 0 {
			_, _ = e.remove(e.hist.open(all), nil)
		}
		e.within(min(e.c.Patience, 20*time.Second), func() bool { return e.removeVolume(id) == nil })
	})
	return id
}

func (e *env) removeVolume(id string) error {
	ctx, cancel := e.call()
	defer cancel()
	_, err := e.client.RemoveVolume(ctx, &adapterv1.RemoveVolumeRequest{VolumeId: id})
	return err
}

func (e *env) volumes() map[string]*adapterv1.Volume {
	e.Helper()
	ctx, cancel := e.call()
	defer cancel()
	res, err := e.client.ListVolumes(ctx, &adapterv1.ListVolumesRequest{})
	if err != nil {
		e.Fatalf("ListVolumes: %v", err)
	}
	out := map[string]*adapterv1.Volume{}
	for _, v := range res.Volumes {
		if out[v.VolumeId] != nil {
			e.Errorf("ListVolumes names %q twice", v.VolumeId)
		}
		out[v.VolumeId] = v
	}
	return out
}

// volumeKept: asked again it is the same, over a restart too, and it never shrinks.
func volumeKept(e *env) {
	id := e.newVolume()
	e.volume(id, smallVolume)
	grown := e.volume(id, largerVolume).Bytes
	for _, when := range []string{"then", "after a restart"} {
		if v := e.volume(id, smallVolume); v.Bytes < grown {
			e.Errorf("a volume of %d bytes, asked for with %d %s, has %d; one that is larger is left as it is", grown, smallVolume, when, v.Bytes)
		}
		if v := e.volumes()[id]; v == nil || v.Bytes < grown {
			e.Errorf("%s ListVolumes has {%v} for a volume of %d bytes", when, v, grown)
		}
		e.restart()
	}
}

func volumeNames(e *env) {
	for _, id := range []string{"", "../x", "a/b", ".", strings.Repeat("x", 65)} {
		_, err := e.tryVolume(id, smallVolume)
		e.wantCode(err, "EnsureVolume with the ID "+clip(id), connect.CodeInvalidArgument)
	}
}

// onVolume runs a command with a volume at /data-of-volume to its end.
func (e *env) onVolume(o *observer, id, command string, readOnly bool) string {
	e.Helper()
	a := e.attempt(command)
	a.Volumes = []*adapterv1.VolumeMount{{VolumeId: id, Path: mountPath, ReadOnly: readOnly}}
	e.apply(a)
	o.ended(a.AttemptId)
	return string(e.log(a.AttemptId))
}

// mountPath is where volumes are mounted in this suite.
const mountPath = "/yunhe-suite-volume"

// volumeShared: what one attempt writes others find, those that may only read
// change nothing, and no volume shows another's files.
func volumeShared(e *env) {
	id, other := e.newVolume(), e.newVolume()
	o := e.observe()
	e.onVolume(o, id, "echo kept >"+mountPath+"/file", false)
	e.restart()
	o = e.observe()
	read := "cat " + mountPath + "/file"
	if got := e.onVolume(o, id, read, false); got != "kept\n" {
		e.Errorf("what one attempt wrote to a volume, another reads as %s; want it whole, after a restart of the driver too", clip(got))
	}
	e.onVolume(o, id, "echo changed >"+mountPath+"/file; rm -f "+mountPath+"/file", true)
	if got := e.onVolume(o, id, read, true); got != "kept\n" {
		e.Errorf("an attempt that may only read changed the volume: another reads %s; want it as it was", clip(got))
	}
	if got := e.onVolume(o, other, "ls "+mountPath, false); strings.Contains(got, "file") {
		e.Errorf("another volume shows %s; it must be empty", clip(got))
	}
}

func volumeUnknown(e *env) {
	a := e.attempt(e.c.Commands.Exit(0))
	a.Volumes = []*adapterv1.VolumeMount{{VolumeId: "no-such-volume", Path: mountPath}}
	e.refused(a, "a volume that is not there", "no-such-volume")
}

// volumeRemove: not while an attempt has it, and with all that was in it.
func volumeRemove(e *env) {
	id := e.newVolume()
	o := e.observe()
	a := e.attempt("echo old >" + mountPath + "/file; echo up; " + e.c.Commands.Wait)
	a.Volumes = []*adapterv1.VolumeMount{{VolumeId: id, Path: mountPath}}
	e.apply(a)
	o.running(a.AttemptId)
	e.await(a.AttemptId, "up\n")
	e.wantCode(e.removeVolume(id), "RemoveVolume while an attempt has it", connect.CodeFailedPrecondition)
	e.stop(a.AttemptId)
	o.ended(a.AttemptId)
	for _, when := range []string{"", ", again"} {
		var err error
		if !e.within(e.c.Patience, func() bool { err = e.removeVolume(id); return err == nil }) {
			e.Errorf("RemoveVolume%s: %v; want success once no attempt has it, and ever after", when, err)
		}
	}
	if v := e.volumes()[id]; v != nil {
		e.Errorf("after RemoveVolume ListVolumes has {%v}", v)
	}
	e.volume(id, smallVolume)
	if got := e.onVolume(o, id, "ls "+mountPath, false); strings.Contains(got, "file") {
		e.Errorf("a volume made anew under the ID of one that was deleted shows %s; it must be empty: others may have it now", clip(got))
	}
}
