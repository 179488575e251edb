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

// TestTwoPersons tries every way for less than two persons to erase somebody.
func TestTwoPersons(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hire(t, b.de, contacted, "E-1", 1)
	s := b.requested(t)
	service := officer
	service.ActorType = event.System
	agent, nobody, secondLogin := approver, approver, officer
	agent.ActorType, nobody.PersonID, secondLogin.PrincipalID = event.Agent, "", officer.PersonID+"/api-key"
	stranger := approver
	stranger.TenantID = "other"
	for name, c := range map[string]struct {
		who  ports.Principal
		code string
	}{
		"the same person":      {officer, "erasure.same_person"},
		"another login of it":  {secondLogin, "erasure.same_person"},
		"a service":            {service, "erasure.needs_person"},
		"an agent":             {agent, "erasure.needs_person"},
		"nobody known":         {nobody, "erasure.needs_person"},
		"from another tenant":  {stranger, "erasure.not_found"},
		"who sees one entity":  {seeing(approver, "DEMF"), "erasure.not_found"},
		"who sees another one": {seeing(approver, "FRMF"), "erasure.not_found"},
	} {
		_, err := b.service.Approve(t.Context(), c.who, s.ID, "")
		require.Equal(t, c.code, fault.CodeOf(err), name)
		_, err = b.service.Reject(t.Context(), c.who, s.ID, "no")
		require.Equal(t, c.code, fault.CodeOf(err), name)
		b.work(t)
		require.Equal(t, "previewed", b.get(t, s.ID).State, name)
	}
	_, err := b.service.Request(t.Context(), service, request())
	require.Equal(t, "erasure.needs_person", fault.CodeOf(err))
	_, err = b.service.PlaceHold(t.Context(), service, erasure.NewHold{Subject: subject, Reason: "x"})
	require.Equal(t, "erasure.needs_person", fault.CodeOf(err))
	_, err = b.service.ReleaseHold(t.Context(), service, s.ID)
	require.Equal(t, "erasure.needs_person", fault.CodeOf(err))
	_, err = b.service.Withdraw(t.Context(), service, s.ID, "x")
	require.Equal(t, "erasure.needs_person", fault.CodeOf(err))

	// The register itself refuses, whatever the service thinks.
	_, err = b.register.Erasures().ApproveErasure(t.Context(), s.ID, officer.PersonID, b.raw(t, s.ID).Scope, b.clock.Now())
	require.Equal(t, "erasure.same_person", fault.CodeOf(err))

	// The approval of another subject's request moves nothing here.
	other := b.approved(t, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" })
	b.work(t)
	require.Equal(t, "completed", b.get(t, other.ID).State)
	require.Equal(t, "previewed", b.get(t, s.ID).State)
	_, err = b.register.Erasures().ApproveErasure(t.Context(), s.ID, approver.PersonID, b.raw(t, other.ID).Scope, b.clock.Now())
	require.Equal(t, "erasure.scope_changed", fault.CodeOf(err))

	// A repeated approval is no second one, and a used one starts nothing.
	first, err := b.service.Approve(t.Context(), approver, s.ID, "")
	require.NoError(t, err)
	b.clock.Advance(time.Minute)
	again, err := b.service.Approve(t.Context(), approver, s.ID, "")
	require.NoError(t, err)
	require.Equal(t, first.ApprovedAt, again.ApprovedAt)
	_, err = b.service.Approve(t.Context(), person("p-third"), s.ID, "")
	require.Equal(t, "erasure.move_refused", fault.CodeOf(err))
	b.work(t)
	again, err = b.service.Approve(t.Context(), approver, s.ID, "")
	require.NoError(t, err)
	require.Equal(t, "completed", again.State)
	require.Len(t, b.receipts(t), 2)
}

func seeing(p ports.Principal, codes ...string) ports.Principal {
	p.LegalEntities = codes
	return p
}

func TestRequestRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	past := event.DateOf(start).AddDays(-1)
	for name, c := range map[string]struct {
		change func(*erasure.NewRequest)
		code   string
		field  string
	}{
		"no subject":              {func(n *erasure.NewRequest) { n.Subject = "" }, "pii.subject_invalid", "/subject"},
		"a name":                  {func(n *erasure.NewRequest) { n.Subject = "Ada Lovelace" }, "pii.subject_invalid", "/subject"},
		"an account as subject":   {func(n *erasure.NewRequest) { n.Subject = "payee:DE89370400440532013000" }, "pii.subject_invalid", "/subject"},
		"no basis":                {func(n *erasure.NewRequest) { n.Basis = "" }, "erasure.basis_invalid", "/basis"},
		"another basis":           {func(n *erasure.NewRequest) { n.Basis = "whim" }, "erasure.basis_invalid", "/basis"},
		"no reason":               {func(n *erasure.NewRequest) { n.Reason = " \n" }, "erasure.reason_missing", "/reason"},
		"a long reason":           {func(n *erasure.NewRequest) { n.Reason = strings.Repeat("x", 1001) }, "erasure.reason_invalid", "/reason"},
		"a mail address in it":    {func(n *erasure.NewRequest) { n.Reason = "asked by mail (ada@example.org)." }, "erasure.reason_invalid", "/reason"},
		"a due date that is over": {func(n *erasure.NewRequest) { n.DueOn = &past }, "erasure.due_invalid", "/due_on"},
		"no such legal entity":    {func(n *erasure.NewRequest) { n.LegalEntities = []string{"DEMF", "XXXX"} }, "legal_entity.not_found", "/legal_entities"},
		"a long key":              {func(n *erasure.NewRequest) { n.IdempotencyKey = strings.Repeat("k", 201) }, "idempotency.key_invalid", ""},
	} {
		_, err := b.service.Request(t.Context(), officer, request(c.change))
		f, _ := fault.As(err)
		require.NotNil(t, f, name)
		require.Equal(t, c.code, f.Code, name)
		require.Equal(t, c.field, f.Field, name)
		require.NotContains(t, f.Error(), "Ada", name)
		require.NotContains(t, f.Error(), "DE89", name)
	}
	_, err := b.service.Request(t.Context(), seeing(officer, "DEMF"), request(func(n *erasure.NewRequest) { n.LegalEntities = []string{"USMF"} }))
	require.Equal(t, "legal_entity.not_found", fault.CodeOf(err), "out of sight is as if it were not there")
	require.Contains(t, err.Error(), "GET /api/admin/legal-entities")
	require.Empty(t, b.list(t))

	due := event.DateOf(start).AddDays(3)
	s := b.requested(t, func(n *erasure.NewRequest) { n.DueOn = &due })
	require.Equal(t, 3, s.DaysLeft)
	b.clock.Advance(5 * 24 * time.Hour)
	require.Equal(t, -2, b.get(t, s.ID).DaysLeft)
}

func TestList_VisibleRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	german := seeing(officer, "DEMF")
	s, err := b.service.Request(t.Context(), german, request())
	require.NoError(t, err)
	require.Equal(t, []string{"DEMF"}, s.LegalEntities, "what the officer sees, and not all of the tenant")
	require.False(t, b.raw(t, s.ID).AllEntities)
	wide := b.requested(t, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" })
	require.True(t, b.raw(t, wide.ID).AllEntities)

	list, err := b.service.List(t.Context(), german, nil, 1)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, s.ID, list[0].ID)
	_, err = b.service.Get(t.Context(), german, wide.ID)
	require.Equal(t, "erasure.not_found", fault.CodeOf(err))
	_, err = b.service.Certificate(t.Context(), german, wide.ID)
	require.Equal(t, "erasure.not_found", fault.CodeOf(err))
	list, err = b.service.List(t.Context(), officer, []string{"completed"}, 0)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = b.service.List(t.Context(), officer, []string{"done"}, 0)
	require.Equal(t, "erasure.state_invalid", fault.CodeOf(err))

	hold, err := b.service.PlaceHold(t.Context(), german, erasure.NewHold{Subject: subject, Reason: "law suit 17/26"})
	require.NoError(t, err)
	require.Equal(t, "DEMF", hold[0].LegalEntity)
	_, err = b.service.ReleaseHold(t.Context(), german, hold[0].ID)
	require.Equal(t, "erasure.needs_all_entities", fault.CodeOf(err))
	seen, err := b.service.Holds(t.Context(), seeing(officer, "USMF"), subject)
	require.NoError(t, err)
	require.Empty(t, seen)
	seen, err = b.service.Holds(t.Context(), officer, subject)
	require.NoError(t, err)
	require.Equal(t, hold, seen)
	past := event.DateOf(start).AddDays(-1)
	_, err = b.service.PlaceHold(t.Context(), officer, erasure.NewHold{Subject: subject, Reason: "x", Until: &past})
	require.Equal(t, "erasure.until_invalid", fault.CodeOf(err))
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	keyed := func(n *erasure.NewRequest) { n.IdempotencyKey = "k-1" }
	first := b.requested(t, keyed)
	require.False(t, first.Replayed)
	again := b.requested(t, keyed)
	require.Equal(t, first.ID, again.ID)
	require.True(t, again.Replayed)
	b.clock.Advance(24 * time.Hour)
	require.Equal(t, first.ID, b.requested(t, keyed).ID, "the next day")
	_, err := b.service.Request(t.Context(), officer, request(keyed, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" }))
	require.Equal(t, "idempotency.mismatch", fault.CodeOf(err))
	s, err := b.service.Request(t.Context(), approver, request(keyed, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" }))
	require.NoError(t, err, "keys are a person's own")
	require.NotEqual(t, first.ID, s.ID)
	require.False(t, s.Replayed)
	_, err = b.service.Withdraw(t.Context(), officer, first.ID, "asked by mistake")
	require.NoError(t, err)
	require.Equal(t, "withdrawn", b.requested(t, keyed).State, "the first answer, as it stands now")
}

func TestEndings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.requested(t)
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

	s = b.approved(t)
	withdrawn, err := b.service.Withdraw(t.Context(), officer, s.ID, "the person changed their mind")
	require.NoError(t, err)
	require.Equal(t, "withdrawn", withdrawn.State)
	b.work(t)
	require.Empty(t, b.exports.names())

	s = b.approved(t)
	b.stopAt(t, shredding.ErasureFenced)
	_, err = b.service.Withdraw(t.Context(), officer, s.ID, "too late")
	require.Equal(t, "erasure.move_refused", fault.CodeOf(err))
	for _, step := range b.get(t, s.ID).Steps {
		require.Equal(t, step.State == "requested" || step.State == "previewed" || step.State == "approved" || step.State == "fenced", step.Done, step.State)
	}
}

// TestStepTimes reads the times of the steps, also of a request that went
// back and of one that left the way.
func TestStepTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hire(t, b.us, contacted, "E-1", 1)
	s := b.approved(t)
	b.work(t)
	done := b.get(t, s.ID)
	require.Equal(t, "completed", done.State)
	for i, step := range done.Steps {
		require.True(t, step.Done)
		require.False(t, step.At.IsZero(), step.State)
		require.True(t, i == 0 || !step.At.Before(done.Steps[i-1].At), step.State)
	}
	s = b.approved(t, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" })
	at := start.Add(time.Hour)
	b.clock.Set(at)
	_, err := b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "FRRT", TimeZone: "Europe/Paris"})
	require.NoError(t, err)
	b.work(t)
	back := b.get(t, s.ID)
	require.Equal(t, "previewed", back.State)
	require.Equal(t, at, back.Steps[1].At, "the last time")
	require.True(t, back.Steps[2].At.IsZero(), "that approval is void")
	_, err = b.service.Reject(t.Context(), approver, s.ID, "too much")
	require.NoError(t, err)
	left := b.get(t, s.ID)
	require.True(t, left.Steps[1].Done)
	require.False(t, left.Steps[2].Done)
}

// TestApprove_RequiresReviewedPreview repeats an approval after the request has come
// to concern another legal entity, as a client does whose answer was lost.
func TestApprove_RequiresReviewedPreview(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.requested(t)
	require.NotEmpty(t, s.Scope)
	_, err := b.service.Approve(t.Context(), approver, s.ID, s.Scope)
	require.NoError(t, err)
	_, err = b.service.Approve(t.Context(), approver, s.ID, s.Scope)
	require.NoError(t, err, "a repeat")
	_, err = b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "FRRT", TimeZone: "Europe/Paris"})
	require.NoError(t, err)
	b.work(t)
	require.Equal(t, "previewed", b.get(t, s.ID).State)
	_, err = b.service.Approve(t.Context(), approver, s.ID, s.Scope)
	require.Equal(t, "erasure.scope_changed", fault.CodeOf(err))
	seen := b.get(t, s.ID)
	require.ElementsMatch(t, []string{"DEMF", "USMF", "FRRT"}, seen.LegalEntities)
	_, err = b.service.Approve(t.Context(), approver, s.ID, seen.Scope)
	require.NoError(t, err)
}
