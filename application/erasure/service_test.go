package erasure_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// TestApprove_RequiresSecondPerson tries to approve, reject and request without two persons.
func TestApprove_RequiresSecondPerson(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createRequest(t)
	service := officer
	service.ActorType = event.System
	agent, withoutPerson, secondLogin := approver, approver, officer
	agent.ActorType, withoutPerson.PersonID, secondLogin.PrincipalID = event.Agent, "", officer.PersonID+"/api-key"
	ofOtherTenant := approver
	ofOtherTenant.TenantID = "other"
	for name, c := range map[string]struct {
		caller ports.Principal
		code   string
	}{
		"requester":                     {officer, "erasure.same_person"},
		"second login of the requester": {secondLogin, "erasure.same_person"},
		"service":                       {service, "erasure.needs_person"},
		"agent":                         {agent, "erasure.needs_person"},
		"without a person id":           {withoutPerson, "erasure.needs_person"},
		"of another tenant":             {ofOtherTenant, "erasure.not_found"},
		"sees one of two entities":      {restrictedTo(approver, "DEMF"), "erasure.not_found"},
		"sees another entity":           {restrictedTo(approver, "FRMF"), "erasure.not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.service.Approve(t.Context(), c.caller, s.ID, "")
			require.Equal(t, c.code, fault.CodeOf(err))
			_, err = b.service.Reject(t.Context(), c.caller, s.ID, "no")
			require.Equal(t, c.code, fault.CodeOf(err))
			b.runNewWorker(t)
			require.Equal(t, "previewed", b.getStatus(t, s.ID).State)
		})
	}
	_, err := b.service.Request(t.Context(), service, newRequest())
	require.Equal(t, "erasure.needs_person", fault.CodeOf(err))
	_, _, err = b.service.PlaceHold(t.Context(), service, erasure.NewHold{Subject: subject, Reason: "x"})
	require.Equal(t, "erasure.needs_person", fault.CodeOf(err))
	_, err = b.service.ReleaseHold(t.Context(), service, s.ID)
	require.Equal(t, "erasure.needs_person", fault.CodeOf(err))
	_, err = b.service.Withdraw(t.Context(), service, s.ID, "x")
	require.Equal(t, "erasure.needs_person", fault.CodeOf(err))

	// The register itself refuses too.
	_, err = b.register.Erasures().ApproveErasure(t.Context(), s.ID, officer.PersonID, b.storedRequest(t, s.ID).Scope, b.clock.Now())
	require.Equal(t, "erasure.same_person", fault.CodeOf(err))

	// The approval of another subject's request does not move this one.
	other := b.createApprovedRequest(t, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" })
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, other.ID).State)
	require.Equal(t, "previewed", b.getStatus(t, s.ID).State)
	_, err = b.register.Erasures().ApproveErasure(t.Context(), s.ID, approver.PersonID, b.storedRequest(t, other.ID).Scope, b.clock.Now())
	require.Equal(t, "erasure.scope_changed", fault.CodeOf(err))

	// A repeated approval changes nothing, also after the erasure.
	first, err := b.service.Approve(t.Context(), approver, s.ID, "")
	require.NoError(t, err)
	b.clock.Advance(time.Minute)
	again, err := b.service.Approve(t.Context(), approver, s.ID, "")
	require.NoError(t, err)
	require.Equal(t, first.ApprovedAt, again.ApprovedAt)
	_, err = b.service.Approve(t.Context(), person("p-third"), s.ID, "")
	require.Equal(t, "erasure.move_refused", fault.CodeOf(err))
	b.runNewWorker(t)
	again, err = b.service.Approve(t.Context(), approver, s.ID, "")
	require.NoError(t, err)
	require.Equal(t, "completed", again.State)
	require.Len(t, b.listReceipts(t), 2)
}

func restrictedTo(p ports.Principal, codes ...string) ports.Principal {
	p.LegalEntities = codes
	return p
}

func TestRequest_Refusals(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	past := event.DateOf(start).AddDays(-1)
	for name, c := range map[string]struct {
		change func(*erasure.NewRequest)
		code   string
		field  string
	}{
		"empty subject":          {func(n *erasure.NewRequest) { n.Subject = "" }, "pii.subject_invalid", "/subject"},
		"name as subject":        {func(n *erasure.NewRequest) { n.Subject = "Ada Lovelace" }, "pii.subject_invalid", "/subject"},
		"account as subject":     {func(n *erasure.NewRequest) { n.Subject = "payee:DE89370400440532013000" }, "pii.subject_invalid", "/subject"},
		"no basis":               {func(n *erasure.NewRequest) { n.Basis = "" }, "erasure.basis_invalid", "/basis"},
		"unknown basis":          {func(n *erasure.NewRequest) { n.Basis = "other" }, "erasure.basis_invalid", "/basis"},
		"no reason":              {func(n *erasure.NewRequest) { n.Reason = " \n" }, "erasure.reason_missing", "/reason"},
		"long reason":            {func(n *erasure.NewRequest) { n.Reason = strings.Repeat("x", 1001) }, "erasure.reason_invalid", "/reason"},
		"mail address in reason": {func(n *erasure.NewRequest) { n.Reason = "asked by mail (ada@example.org)." }, "erasure.reason_invalid", "/reason"},
		"past due date":          {func(n *erasure.NewRequest) { n.DueOn = &past }, "erasure.due_invalid", "/due_on"},
		"unknown legal entity":   {func(n *erasure.NewRequest) { n.LegalEntities = []string{"DEMF", "XXXX"} }, "legal_entity.not_found", "/legal_entities"},
		"long idempotency key":   {func(n *erasure.NewRequest) { n.IdempotencyKey = strings.Repeat("k", 256) }, "idempotency.key_invalid", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.service.Request(t.Context(), officer, newRequest(c.change))
			f, _ := fault.As(err)
			require.NotNil(t, f)
			require.Equal(t, c.code, f.Code)
			require.Equal(t, c.field, f.Field)
			require.NotContains(t, f.Error(), "Ada")
			require.NotContains(t, f.Error(), "DE89")
		})
	}
	_, err := b.service.Request(t.Context(), restrictedTo(officer, "DEMF"), newRequest(func(n *erasure.NewRequest) { n.LegalEntities = []string{"USMF"} }))
	require.Equal(t, "legal_entity.not_found", fault.CodeOf(err), "an entity that the caller does not see looks absent")
	require.Contains(t, err.Error(), "GET /api/admin/legal-entities")
	require.Empty(t, b.listRequests(t))

	due := event.DateOf(start).AddDays(3)
	s := b.createRequest(t, func(n *erasure.NewRequest) { n.DueOn = &due })
	require.Equal(t, 3, s.DaysLeft)
	b.clock.Advance(5 * 24 * time.Hour)
	require.Equal(t, -2, b.getStatus(t, s.ID).DaysLeft)
}

func TestList_VisibleRequests(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	ofDEMF := restrictedTo(officer, "DEMF")
	s, err := b.service.Request(t.Context(), ofDEMF, newRequest())
	require.NoError(t, err)
	require.Equal(t, []string{"DEMF"}, s.LegalEntities, "those that the officer sees, not all of the tenant")
	require.False(t, b.storedRequest(t, s.ID).AllEntities)
	wide := b.createRequest(t, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" })
	require.True(t, b.storedRequest(t, wide.ID).AllEntities)

	list, err := b.service.List(t.Context(), ofDEMF, nil, 1)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, s.ID, list[0].ID)
	_, err = b.service.Get(t.Context(), ofDEMF, wide.ID)
	require.Equal(t, "erasure.not_found", fault.CodeOf(err))
	_, err = b.service.Certificate(t.Context(), ofDEMF, wide.ID)
	require.Equal(t, "erasure.not_found", fault.CodeOf(err))
	list, err = b.service.List(t.Context(), officer, []string{"completed"}, 0)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = b.service.List(t.Context(), officer, []string{"done"}, 0)
	require.Equal(t, "erasure.state_invalid", fault.CodeOf(err))

	hold, _, err := b.service.PlaceHold(t.Context(), ofDEMF, erasure.NewHold{Subject: subject, Reason: "law suit 17/26"})
	require.NoError(t, err)
	require.Equal(t, "DEMF", hold[0].LegalEntity)
	_, err = b.service.ReleaseHold(t.Context(), ofDEMF, hold[0].ID)
	require.Equal(t, "erasure.needs_all_entities", fault.CodeOf(err))
	seen, err := b.service.Holds(t.Context(), restrictedTo(officer, "USMF"), subject)
	require.NoError(t, err)
	require.Empty(t, seen)
	seen, err = b.service.Holds(t.Context(), officer, subject)
	require.NoError(t, err)
	require.Equal(t, hold, seen)
	past := event.DateOf(start).AddDays(-1)
	_, _, err = b.service.PlaceHold(t.Context(), officer, erasure.NewHold{Subject: subject, Reason: "x", Until: &past})
	require.Equal(t, "erasure.until_invalid", fault.CodeOf(err))
}

func TestRequest_IdempotencyKey(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	keyed := func(n *erasure.NewRequest) { n.IdempotencyKey = "k-1" }
	first := b.createRequest(t, keyed)
	require.False(t, first.Replayed)
	again := b.createRequest(t, keyed)
	require.Equal(t, first.ID, again.ID)
	require.True(t, again.Replayed)
	b.clock.Advance(24 * time.Hour)
	require.Equal(t, first.ID, b.createRequest(t, keyed).ID, "the next day")
	_, err := b.service.Request(t.Context(), officer, newRequest(keyed, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" }))
	require.Equal(t, "idempotency.mismatch", fault.CodeOf(err))
	s, err := b.service.Request(t.Context(), approver, newRequest(keyed, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" }))
	require.NoError(t, err, "each person has keys of their own")
	require.NotEqual(t, first.ID, s.ID)
	require.False(t, s.Replayed)
	_, err = b.service.Withdraw(t.Context(), officer, first.ID, "asked by mistake")
	require.NoError(t, err)
	require.Equal(t, "withdrawn", b.createRequest(t, keyed).State, "the first request in its present state")
}

func TestRejectAndWithdraw(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	s := b.createRequest(t)
	_, err := b.service.Reject(t.Context(), approver, s.ID, "")
	require.Equal(t, "erasure.reason_missing", fault.CodeOf(err))
	rejected, err := b.service.Reject(t.Context(), approver, s.ID, "the person is still employed")
	require.NoError(t, err)
	require.Equal(t, "rejected", rejected.State)
	require.Equal(t, approver.PersonID, rejected.EndedBy)
	require.Zero(t, rejected.DaysLeft)
	_, err = b.service.Reject(t.Context(), approver, s.ID, "again")
	require.NoError(t, err, "it is as it should be")
	_, err = b.service.Approve(t.Context(), approver, s.ID, "")
	require.Equal(t, "erasure.move_refused", fault.CodeOf(err))

	s = b.createApprovedRequest(t)
	withdrawn, err := b.service.Withdraw(t.Context(), officer, s.ID, "the person changed their mind")
	require.NoError(t, err)
	require.Equal(t, "withdrawn", withdrawn.State)
	b.runNewWorker(t)
	require.Empty(t, b.exports.names())

	s = b.createApprovedRequest(t)
	b.runWorkerUntil(t, shredding.ErasureFenced)
	_, err = b.service.Withdraw(t.Context(), officer, s.ID, "too late")
	require.Equal(t, "erasure.move_refused", fault.CodeOf(err))
	for _, step := range b.getStatus(t, s.ID).Steps {
		require.Equal(t, step.State == "requested" || step.State == "previewed" || step.State == "approved" || step.State == "fenced", step.Done, step.State)
	}
}

// TestGet_StepTimes reads the times of the steps, also of a request that went back to
// previewed and of one that was rejected.
func TestGet_StepTimes(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.us, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	b.runNewWorker(t)
	done := b.getStatus(t, s.ID)
	require.Equal(t, "completed", done.State)
	for i, step := range done.Steps {
		require.True(t, step.Done)
		require.False(t, step.At.IsZero(), step.State)
		require.True(t, i == 0 || !step.At.Before(done.Steps[i-1].At), step.State)
	}
	s = b.createApprovedRequest(t, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" })
	at := start.Add(time.Hour)
	b.clock.Set(at)
	_, err := b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "FRRT", TimeZone: "Europe/Paris"})
	require.NoError(t, err)
	b.runNewWorker(t)
	back := b.getStatus(t, s.ID)
	require.Equal(t, "previewed", back.State)
	require.Equal(t, at, back.Steps[1].At, "the last time")
	require.True(t, back.Steps[2].At.IsZero(), "that approval is void")
	_, err = b.service.Reject(t.Context(), approver, s.ID, "too much")
	require.NoError(t, err)
	left := b.getStatus(t, s.ID)
	require.True(t, left.Steps[1].Done)
	require.False(t, left.Steps[2].Done)
}

// TestApprove_RequiresReviewedPreview repeats an approval after a legal entity was added, as a
// client does that has lost the response.
func TestApprove_RequiresReviewedPreview(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	s := b.createRequest(t)
	require.NotEmpty(t, s.Scope)
	_, err := b.service.Approve(t.Context(), approver, s.ID, s.Scope)
	require.NoError(t, err)
	_, err = b.service.Approve(t.Context(), approver, s.ID, s.Scope)
	require.NoError(t, err, "a repeat")
	_, err = b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "FRRT", TimeZone: "Europe/Paris"})
	require.NoError(t, err)
	b.runNewWorker(t)
	require.Equal(t, "previewed", b.getStatus(t, s.ID).State)
	_, err = b.service.Approve(t.Context(), approver, s.ID, s.Scope)
	require.Equal(t, "erasure.scope_changed", fault.CodeOf(err))
	seen := b.getStatus(t, s.ID)
	require.ElementsMatch(t, []string{"DEMF", "USMF", "FRRT", ports.AdministrativeCode}, seen.LegalEntities)
	_, err = b.service.Approve(t.Context(), approver, s.ID, seen.Scope)
	require.NoError(t, err)
}
