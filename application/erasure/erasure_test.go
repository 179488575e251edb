package erasure_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

func TestErasure_Complete(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 20)
	b.appendEvents(t, b.us, contactedType, "E-1", 2)
	b.appendEvents(t, b.us, contactedType, "E-2", 3)

	s := b.createRequest(t)
	require.Equal(t, "previewed", s.State)
	require.Equal(t, 30, s.DaysLeft)
	require.EqualValues(t, 22, s.Preview.Events)
	require.ElementsMatch(t, []string{"DEMF", "USMF", ports.AdministrativeCode}, s.Preview.LegalEntities)
	require.ElementsMatch(t, []erasure.TypeCount{{Type: contactedType, LegalEntity: "DEMF", Events: 20, Fields: 40}, {Type: contactedType, LegalEntity: "USMF", Events: 2, Fields: 4}}, s.Preview.Types)
	require.Equal(t, []string{"hr_people"}, s.Preview.Projections)
	require.Empty(t, s.Preview.Holds)

	b.runNewWorker(t)
	require.Equal(t, "previewed", b.getStatus(t, s.ID).State, "it waits for a second person")
	_, err := b.service.Certificate(t.Context(), officer, s.ID)
	require.Equal(t, "erasure.not_completed", fault.CodeOf(err))
	require.Equal(t, fault.Conflict, fault.KindOf(err))

	b.clock.Advance(time.Hour)
	_, err = b.service.Approve(t.Context(), approver, s.ID, "")
	require.NoError(t, err)
	b.runNewWorker(t)
	s = b.getStatus(t, s.ID)
	require.Equal(t, "completed", s.State, "%+v", s.Steps)
	require.Empty(t, b.observer.failures)
	for _, step := range s.Steps {
		require.True(t, step.Done, step.State)
	}
	for _, c := range s.Classes {
		require.True(t, c.Erased)
	}

	for _, le := range []struct {
		code string
		got  []event.Recorded
	}{{"DEMF", b.announcements(t, b.de)}, {"USMF", b.announcements(t, b.us)}} {
		require.Len(t, le.got, 1, le.code)
		require.Equal(t, "pii.erasure/"+s.ID.String(), le.got[0].Stream.String())
	}
	require.Equal(t, []string{"certificates/" + s.ID.String() + ".json", erasure.ReceiptName(1)}, b.exports.names())

	text, err := signednote.Opener{}.OpenNote(b.exports.documents[erasure.ReceiptName(1)], b.verifierKey)
	require.NoError(t, err)
	receipt, err := erasure.ParseReceipt(text)
	require.NoError(t, err)
	require.Equal(t, s.ID, receipt.RequestID)
	require.Len(t, receipt.Keys, 9, "two legal entities and the administrative log, three classes")

	c, _ := b.readCertificate(t, s.ID)
	require.Equal(t, "complete", c.Outcome)
	require.Equal(t, erasure.CertificateCounts{Events: 22, Redacted: 44, Keys: 9, Versions: 2}, c.Counts)
	require.Equal(t, c.Times.Destroyed.Add(time.Minute), c.Times.Undecrypted)
	require.Equal(t, c.Times.Destroyed.Add(24*time.Hour), c.Times.Backups)
	require.Equal(t, c.Times.Backups.AddDate(0, 0, 7), c.Times.Irrevocable)
	require.Len(t, c.Verification.Chains, 3)
	require.Empty(t, c.Verification.Late)
	require.Contains(t, c.Summary(), " (2 versions, all that there were of the erased classes)\n")
	require.Contains(t, c.Summary(), "Closed for ever        9 keys: one per erased class in each legal entity and in the administrative log, whether it existed or not\n")
	require.Contains(t, c.Summary(), " of tenant acme, legal entities DEMF, USMF and the administrative log\n")
	c.LegalEntities = []string{"DEMF", "USMF"}
	require.Contains(t, c.Summary(), " of tenant acme, legal entities DEMF, USMF\n")
	require.Contains(t, c.Summary(), "one per erased class and legal entity, whether it existed or not\n")
	c.LegalEntities = []string{"_ADMIN"}
	require.Contains(t, c.Summary(), " of tenant acme, the administrative log\n")
	require.Contains(t, c.Summary(), "one per erased class in the administrative log, whether it existed or not\n")
	c.Counts.Keys, c.Counts.Versions, c.Verification.Events = 1, 1, 1
	require.Contains(t, c.Summary(), " (1 version, ")
	c.Counts.Versions = 0
	require.Contains(t, c.Summary(), " (there had been none)\n")
	require.Contains(t, c.Summary(), "  1 key: ")
	require.Contains(t, c.Summary(), " in 1 event and 0 intents read")

	// The other employee's data stay, and events about that employee are still accepted.
	require.EqualValues(t, 3, b.copies.rows[b.us.Partition]["employee:E-2"])
	require.Zero(t, b.copies.rows[b.us.Partition][subject])
	b.appendEvents(t, b.us, contactedType, "E-2", 1)
	require.NoError(t, b.gate.Check(t.Context()))
}

func TestErasure_UnknownSubject(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	s := b.createApprovedRequest(t)
	require.Zero(t, s.Preview.Events)
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
	c, _ := b.readCertificate(t, s.ID)
	require.Equal(t, erasure.CertificateCounts{Keys: 9}, c.Counts)
}

func TestErasure_SubjectErasedTwice(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	first := b.createApprovedRequest(t)
	_, err := b.service.Request(t.Context(), officer, newRequest())
	require.Equal(t, "erasure.duplicate", fault.CodeOf(err), "while one is under way")
	b.runNewWorker(t)
	second := b.createApprovedRequest(t)
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, second.ID).State)
	c, _ := b.readCertificate(t, second.ID)
	require.EqualValues(t, 2, c.Receipt.Number)
	require.Zero(t, c.Counts.Versions, "there was nothing left to destroy")
	require.Len(t, b.announcements(t, b.de), 2)
	require.NotEqual(t, first.ID, second.ID)

	// Each receipt holds the hash of the one before.
	one, two := b.exports.documents[erasure.ReceiptName(1)], b.exports.documents[erasure.ReceiptName(2)]
	text, err := signednote.Opener{}.OpenNote(two, b.verifierKey)
	require.NoError(t, err)
	r, err := erasure.ParseReceipt(text)
	require.NoError(t, err)
	require.Equal(t, sha256Of(one), r.Previous)
}

func TestErasure_KeepsRetainedClass(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	b.appendEvents(t, b.de, paidType, "E-1", 2)
	until := event.MustDate("2036-03-31")
	s := b.createApprovedRequest(t)
	require.Equal(t, []erasure.Retained{{Class: "regulatory", Until: until}}, s.Preview.Retained)
	b.runNewWorker(t)
	s = b.getStatus(t, s.ID)
	require.Equal(t, "completed", s.State)
	require.Equal(t, []erasure.Class{
		{Class: "standard", Erased: true}, {Class: "regulatory", Refused: "retention", Until: &until}, {Class: "pii_subject", Erased: true},
	}, s.Classes)
	c, _ := b.readCertificate(t, s.ID)
	require.Equal(t, "partial", c.Outcome)
	require.EqualValues(t, 2, c.Verification.Redacted)
	require.EqualValues(t, 4, c.Verification.Kept)
	require.EqualValues(t, 2, b.copies.rows[b.de.Partition][subject], "read models keep the sealed copies of retained classes only")
	b.appendEvents(t, b.de, paidType, "E-1", 1)

	// When the retention is over, a new request waits for its own approval.
	b.clock.Set(until.Time())
	b.runNewWorker(t)
	require.Len(t, b.listRequests(t), 1, "not on the last day itself")
	b.clock.Set(until.AddDays(1).Time())
	worker := testkit.Must(erasure.NewWorker(b.config))
	worker.RunOnce(t.Context())
	b.clock.Advance(2 * time.Hour)
	worker.RunOnce(t.Context())
	all := b.listRequests(t)
	require.Len(t, all, 2)
	require.Equal(t, "previewed", all[0].State)
	require.Equal(t, officer.PersonID, all[0].RequestedBy)
	require.Contains(t, all[0].Reason, s.ID.String())
}

// recordsBeforeFence is a register under whose fence something is recorded that the survey has not seen.
type recordsBeforeFence struct {
	ports.ErasureRegister
	record func()
}

// FenceErasure implements ports.ErasureRegister.
func (l recordsBeforeFence) FenceErasure(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	l.record()
	return l.ErasureRegister.FenceErasure(ctx, r)
}

// TestErasure_RefusedByLateRetention records the first event that must be kept between the survey of the
// fence and the fence.
func TestErasure_RefusedByLateRetention(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	require.Empty(t, s.Preview.Retained)
	register := b.config.Register
	b.config.Register = recordsBeforeFence{register, func() { b.appendEvents(t, b.de, paidType, "E-1", 1) }}
	b.runNewWorker(t)
	s = b.getStatus(t, s.ID)
	require.Equal(t, []any{"refused", "retention"}, []any{s.State, s.EndReason})
	until := event.MustDate("2036-03-31")
	require.Equal(t, []erasure.Class{{Class: "standard", Refused: "retention"}, {Class: "regulatory", Refused: "retention", Until: &until}, {Class: "pii_subject", Refused: "retention"}}, s.Classes)
	require.Empty(t, b.exports.names())
	b.appendEvents(t, b.de, paidType, "E-1", 1)

	b.config.Register = register
	again := b.createApprovedRequest(t)
	require.Equal(t, []erasure.Retained{{Class: "regulatory", Until: until}}, again.Preview.Retained)
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, again.ID).State)
}

func TestRequest_RefusedByRetention(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, paidType, "E-1", 2)
	until := event.MustDate("2036-03-31")
	s := b.createRequest(t)
	require.Equal(t, "refused", s.State)
	require.Equal(t, "retention", s.EndReason)
	for _, c := range s.Classes {
		require.Equal(t, erasure.Class{Class: c.Class, Refused: "retention", Until: &until}, c)
	}
	b.appendEvents(t, b.de, paidType, "E-1", 1)

	// A follow-up is requested when the retention of the first records is over; the record
	// since then refuses it again.
	b.clock.Set(until.AddDays(2).Time())
	testkit.Must(erasure.NewWorker(b.config)).RunOnce(t.Context())
	require.Len(t, b.listRequests(t), 2)
}

func TestRequest_RefusedByHold(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	last := event.DateOf(start).AddDays(10)
	_, _, err := b.service.PlaceHold(t.Context(), officer, erasure.NewHold{Subject: subject, LegalEntities: []string{"DEMF"}, Reason: "law suit 17/26", Until: &last})
	require.NoError(t, err)
	s := b.createRequest(t)
	require.Equal(t, "refused", s.State)
	require.Equal(t, "legal_hold", s.EndReason)
	require.Len(t, s.Preview.Holds, 1)
	for _, c := range s.Classes {
		require.Equal(t, &last, c.Until)
	}
	_, err = b.service.Approve(t.Context(), approver, s.ID, "")
	require.Equal(t, "erasure.move_refused", fault.CodeOf(err))
	require.Equal(t, "previewed", b.createRequest(t, func(n *erasure.NewRequest) { n.LegalEntities = []string{"USMF"} }).State, "the hold is of the other legal entity")
}

// refusesNothing is a register that is unavailable when a request is refused.
type refusesNothing struct{ ports.ErasureRegister }

// RefuseErasure implements ports.ErasureRegister.
func (refusesNothing) RefuseErasure(context.Context, ports.ErasureRequest, string) (ports.ErasureRequest, error) {
	return ports.ErasureRequest{}, fault.New(fault.Unavailable, "keys.unavailable", "down")
}

// TestRequest_RefusalCutOff cuts a request off between its preview and its refusal, after which it can
// be approved.
func TestRequest_RefusalCutOff(t *testing.T) {
	t.Parallel()
	for _, repeated := range []bool{false, true} {
		b := newErasureFixture(t)
		b.appendEvents(t, b.de, contactedType, "E-1", 1)
		_, _, err := b.service.PlaceHold(t.Context(), officer, erasure.NewHold{Subject: subject, Reason: "law suit 17/26"})
		require.NoError(t, err)
		config := b.config
		config.Register = refusesNothing{b.config.Register}
		n := erasure.NewRequest{Subject: subject, Basis: "gdpr_art_17", Reason: "asked for it", IdempotencyKey: "1"}
		_, err = testkit.Must(erasure.NewService(config, func() {})).Request(t.Context(), officer, n)
		require.Equal(t, "keys.unavailable", fault.CodeOf(err))
		s := b.listRequests(t)[0]
		require.Equal(t, "previewed", s.State)
		if repeated {
			s, err = b.service.Request(t.Context(), officer, n)
			require.NoError(t, err)
		} else {
			_, err = b.service.Approve(t.Context(), approver, s.ID, "")
			require.NoError(t, err)
			b.runNewWorker(t)
			s = b.getStatus(t, s.ID)
		}
		require.Equal(t, []any{"refused", "legal_hold"}, []any{s.State, s.EndReason})
	}
}

func TestPlaceHold_BeforeFence(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	holds, _, err := b.service.PlaceHold(t.Context(), officer, erasure.NewHold{Subject: subject, Reason: "law suit 17/26"})
	require.NoError(t, err)
	b.runNewWorker(t)
	s = b.getStatus(t, s.ID)
	require.Equal(t, "refused", s.State)
	require.Equal(t, "legal_hold", s.EndReason)
	require.Nil(t, s.Classes[0].Until)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	require.Empty(t, b.exports.names())

	_, err = b.service.ReleaseHold(t.Context(), officer, holds[0].ID)
	require.NoError(t, err)
	again := b.createApprovedRequest(t)
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, again.ID).State)
}

func TestPlaceHold_BetweenFenceAndDestruction(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	b.runWorkerUntil(t, "fenced")
	b.requireAppendRefused(t, b.de)
	_, _, err := b.service.PlaceHold(t.Context(), officer, erasure.NewHold{Subject: subject, Reason: "law suit 17/26"})
	require.NoError(t, err)
	b.runNewWorker(t)
	require.Equal(t, "refused", b.getStatus(t, s.ID).State)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	require.Empty(t, b.exports.names())
}

func TestApprove_AgainAfterNewLegalEntity(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 5)
	fr := b.createEntity(t, "FRMF")
	b.appendEvents(t, fr, contactedType, "E-1", 1)
	b.runNewWorker(t)
	s = b.getStatus(t, s.ID)
	require.Equal(t, "previewed", s.State)
	require.Empty(t, s.ApprovedBy)
	require.EqualValues(t, 7, s.Preview.Events)
	b.runNewWorker(t)
	require.Equal(t, "previewed", b.getStatus(t, s.ID).State, "the old approval is void")
	_, err := b.service.Approve(t.Context(), approver, s.ID, "")
	require.NoError(t, err)
	b.appendEvents(t, b.de, contactedType, "E-1", 1) // more events do not change the scope
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
	require.Len(t, b.announcements(t, fr), 1)
}

func TestErasure_NamedLegalEntitiesOnly(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	b.appendEvents(t, b.us, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t, func(n *erasure.NewRequest) { n.LegalEntities = []string{"USMF"} })
	b.createEntity(t, "FRMF")
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
	require.Empty(t, b.announcements(t, b.de))
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	b.requireAppendRefused(t, b.us)
}

func TestApprove_ExpiresAfter72Hours(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	b.clock.Advance(72 * time.Hour)
	b.runNewWorker(t)
	s = b.getStatus(t, s.ID)
	require.Equal(t, "expired", s.State)
	require.Equal(t, "approval_expired", s.EndReason)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
}

func TestApprove_ClockAhead(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	s := b.createApprovedRequest(t)
	b.clock.Advance(-2 * time.Second)
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
}

// TestCertificate_TimesOfBackups issues certificates where KEKs are deleted after 30 days, and
// where no job rotates them.
func TestCertificate_TimesOfBackups(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.config.KeyDeletion = 30 * 24 * time.Hour
	s := b.createApprovedRequest(t)
	b.runNewWorker(t)
	c, _ := b.readCertificate(t, s.ID)
	require.Equal(t, c.Times.Destroyed.Add(24*time.Hour), c.Times.Backups)
	require.Equal(t, c.Times.Backups.AddDate(0, 0, 30), c.Times.Irrevocable)

	b.config.RotatedByHand = true
	s = b.createApprovedRequest(t, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" })
	b.runNewWorker(t)
	c, document := b.readCertificate(t, s.ID)
	require.Zero(t, c.Times.Backups)
	require.Zero(t, c.Times.Irrevocable)
	require.NotContains(t, string(document), "irrevocable_from")
	require.Contains(t, c.Times.Condition, "on command only")
	require.NotContains(t, c.Summary(), "0001-01-01")
}
