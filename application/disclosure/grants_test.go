package disclosure_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/module"
	access "github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

var (
	officer = ports.Principal{TenantID: "acme", PersonID: "p-officer", PrincipalID: "p-officer-1", ActorType: event.Human, RoleLabel: "compliance", Roles: []string{"compliance"}}
	auditor = ports.Principal{TenantID: "acme", PersonID: "p-auditor", PrincipalID: "p-auditor-1", ActorType: event.Human, RoleLabel: "auditor", Roles: []string{"auditor"}, TokenHash: event.Hash{1}}
)

func newGrantFixture(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	require.NoError(t, f.principals.SavePrincipal(t.Context(), auditor, "", event.Actor{}))
	return f
}

func contactGrant() disclosure.NewGrant {
	return disclosure.NewGrant{PersonID: "p-auditor", Classes: []shredding.Class{shredding.Contact}, Until: start.Add(time.Hour), Reason: "audit 2026"}
}

// reads reports whether the auditor reads contact and bank data for a reason.
func (f *fixture) reads(t *testing.T, reason string) []bool {
	t.Helper()
	r, err := f.service.Reader(t.Context(), auditor, disclosure.Purpose{Operation: "getEvent", Reason: reason})
	require.NoError(t, err)
	return []bool{r.Reads("any.type", shredding.Contact), r.Reads("any.type", shredding.Bank)}
}

func TestGrant_OpensForItsTime(t *testing.T) {
	t.Parallel()
	f := newGrantFixture(t)
	nothing, contact := []bool{false, false}, []bool{true, false}
	require.Equal(t, nothing, f.reads(t, "ticket 1"), "before")
	made, replayed, err := f.service.Grant(t.Context(), officer, contactGrant())
	require.NoError(t, err)
	require.False(t, replayed)
	require.Equal(t, access.Grant{
		ID: made.ID, PersonID: "p-auditor", Classes: []shredding.Class{shredding.Contact}, Until: start.Add(time.Hour), Reason: "audit 2026", GrantedBy: "p-officer", GrantedAt: made.GrantedAt,
	}, made)
	require.Equal(t, contact, f.reads(t, "ticket 1"))
	require.Equal(t, nothing, f.reads(t, ""), "without a reason")
	granted, err := f.service.Reader(t.Context(), auditor, disclosure.Purpose{Operation: "getEvent", Reason: "ticket 0"})
	require.NoError(t, err)
	require.NoError(t, granted.Disclose(t.Context(), []module.Opened{{Partition: f.entity.Partition, Subject: "person:P-0", Class: shredding.Contact, Values: 1}}))
	require.Equal(t, made.ID, f.search(t, ports.AccessQuery{Subject: "person:P-0"})[0].GrantID)
	f.clock.Advance(time.Hour - time.Microsecond)
	require.Equal(t, contact, f.reads(t, "ticket 1"))
	f.clock.Advance(time.Microsecond)
	require.Equal(t, nothing, f.reads(t, "ticket 1"), "after its time")

	// What is read is recorded with the reason.
	r, err := f.service.Reader(t.Context(), auditor, disclosure.Purpose{Operation: "getEvent", Reason: "ticket 1"})
	require.NoError(t, err)
	require.NoError(t, r.Disclose(t.Context(), []module.Opened{{Partition: f.entity.Partition, Subject: "person:P-1", Class: shredding.Contact, Values: 1}}))
	require.Equal(t, "ticket 1", f.search(t, ports.AccessQuery{PersonID: "p-auditor"})[0].Reason)
}

func TestGrant_Ended(t *testing.T) {
	t.Parallel()
	f := newGrantFixture(t)
	made, _, err := f.service.Grant(t.Context(), officer, contactGrant())
	require.NoError(t, err)
	var running sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		running.Go(func() { _, errs[i] = f.service.End(t.Context(), officer, made.ID, "the audit is over") })
	}
	running.Wait()
	ended := 0
	for _, err := range errs {
		if err == nil {
			ended++
			continue
		}
		require.Equal(t, "disclosure.ended", fault.CodeOf(err))
	}
	require.Equal(t, 1, ended, "one of those who end it at the same time")
	require.Equal(t, []bool{false, false}, f.reads(t, "ticket 1"))
	all, err := f.service.ListGrants(t.Context(), officer)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, []string{"p-officer", "the audit is over"}, []string{all[0].EndedBy, all[0].EndReason})

	// Another node folds the same.
	there, err := administration.NewPrincipals(f.log, f.audit, f.store).Grants(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, all, there)
	_, err = f.service.End(t.Context(), officer, event.ID{1}, "unknown")
	require.Equal(t, "disclosure.not_found", fault.CodeOf(err))
	other := officer
	other.TenantID = "other"
	_, err = f.service.End(t.Context(), other, made.ID, "of another tenant")
	require.Equal(t, "disclosure.not_found", fault.CodeOf(err))
}

func TestGrant_Repeated(t *testing.T) {
	t.Parallel()
	f := newGrantFixture(t)
	n := contactGrant()
	n.IdempotencyKey = "key-1"
	var running sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		running.Go(func() { _, _, errs[i] = f.service.Grant(t.Context(), officer, n) })
	}
	running.Wait()
	require.NoError(t, errors.Join(errs...))
	all, err := f.service.ListGrants(t.Context(), officer)
	require.NoError(t, err)
	require.Len(t, all, 1)
	n.Classes = []shredding.Class{shredding.Bank}
	_, _, err = f.service.Grant(t.Context(), officer, n)
	require.Equal(t, "idempotency.mismatch", fault.CodeOf(err))
	require.Equal(t, []bool{true, false}, f.reads(t, "ticket 1"))

	// A repeat is answered after the role was lost and after the grant's time.
	changed, err := f.principals.PrincipalByPerson(t.Context(), "acme", "p-auditor")
	require.NoError(t, err)
	changed.Roles = []string{"ap_clerk"}
	require.NoError(t, f.principals.SavePrincipal(t.Context(), changed, "", event.Actor{}))
	f.clock.Advance(2 * time.Hour)
	n.Classes = contactGrant().Classes
	again, replayed, err := f.service.Grant(t.Context(), officer, n)
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, all[0].ID, again.ID)
	n.IdempotencyKey = "key-2"
	_, _, err = f.service.Grant(t.Context(), officer, n)
	require.Equal(t, "disclosure.until_invalid", fault.CodeOf(err))
}

func TestGrant_Refused(t *testing.T) {
	t.Parallel()
	f := newGrantFixture(t)
	clerkToken := clerk
	clerkToken.TokenHash = event.Hash{2}
	require.NoError(t, f.principals.SavePrincipal(t.Context(), clerkToken, "", event.Actor{}))
	service := officer
	service.ActorType = event.System
	for code, change := range map[string]func(by *ports.Principal, n *disclosure.NewGrant){
		"disclosure.needs_person":    func(by *ports.Principal, _ *disclosure.NewGrant) { *by = service },
		"disclosure.self":            func(by *ports.Principal, _ *disclosure.NewGrant) { by.PersonID = "P-Auditor" },
		"disclosure.classes_invalid": func(_ *ports.Principal, n *disclosure.NewGrant) { n.Classes = []shredding.Class{"shoe_size"} },
		"disclosure.until_invalid":   func(_ *ports.Principal, n *disclosure.NewGrant) { n.Until = start.Add(31 * 24 * time.Hour) },
		"pii.in_text":                func(_ *ports.Principal, n *disclosure.NewGrant) { n.Reason = "for olga@example.org" },
		"principal.not_found":        func(_ *ports.Principal, n *disclosure.NewGrant) { n.PersonID = "p-unknown" },
		"disclosure.not_auditor":     func(_ *ports.Principal, n *disclosure.NewGrant) { n.PersonID = "p-clerk" },
	} {
		by, n := officer, contactGrant()
		change(&by, &n)
		_, _, err := f.service.Grant(t.Context(), by, n)
		require.Equal(t, code, fault.CodeOf(err))
	}
	n := contactGrant()
	n.Until = start
	_, _, err := f.service.Grant(t.Context(), officer, n)
	require.Equal(t, "disclosure.until_invalid", fault.CodeOf(err))
	_, err = f.service.End(t.Context(), service, event.ID{}, "by a service")
	require.Equal(t, "disclosure.needs_person", fault.CodeOf(err))
	require.Empty(t, f.search(t, ports.AccessQuery{}))
	all, err := f.service.ListGrants(t.Context(), officer)
	require.NoError(t, err)
	require.Empty(t, all)
}
