package upcasting_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

const (
	openV1      = `{"type":"object","properties":{"size":{"type":"integer"}}}`
	openCounted = `{"type":"object","properties":{"size":{"type":"integer"},"count":{"type":"integer"}}}`
)

var second = event.Actor{Type: event.Human, ID: "p-second"}

func (b *upcastFixture) amend(schema string, by event.Actor) (eventtype.Registration, error) {
	return b.types.Register(b.t.Context(), version(1, schema), by, registry.ProofRequest{Visible: map[event.PartitionID]string{b.entities[0].Partition: "DEMF"}})
}

func (b *upcastFixture) decide(decide func(registry.Decision) error, by event.Actor) error {
	return decide(registry.Decision{TenantID: acme, Type: lead, SchemaVersion: 1, By: by})
}

func (b *upcastFixture) confirmAmendment(by event.Actor) error {
	return b.decide(func(d registry.Decision) error {
		_, err := b.types.Confirm(b.t.Context(), d, registry.ProofRequest{})
		return err
	}, by)
}

// An open schema may have had anything under the name of a member that it gets.
func TestAmend_StoredEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, openV1))
	require.NoError(t, b.append(0, lead, 1, `{"size":1,"count":"many"}`))
	require.NoError(t, b.append(1, lead, 1, `{"size":1}`))

	found := b.check(version(1, openCounted), registry.ProofRequest{Visible: map[event.PartitionID]string{b.entities[0].Partition: "DEMF"}})
	require.Equal(t, registry.VerdictRefused, found.Verdict)
	require.Equal(t, 2, found.Report.Events)
	require.Equal(t, []module.ProofFailure{{
		EventID: b.stored(0)[0].ID.String(), LegalEntity: "DEMF", Sequence: "1", SchemaVersion: 1, Code: "schema.type", Pointer: "/count",
	}}, found.Report.Failures)
	_, err := b.amend(openCounted, admin)
	require.Equal(t, "event_type.amendment_contradicted", code(t, err))
	f, _ := fault.As(err)
	require.Equal(t, "/count", f.Violations[0].Field)

	counted := `{"type":"object","properties":{"size":{"type":"integer"},"count":{"type":["integer","string"],"x-not-pii":"a number in words"}}}`
	_, err = b.amend(counted, event.Actor{Type: event.System, ID: "s-1"})
	require.Equal(t, "event_type.person_required", code(t, err))
	got, err := b.amend(counted, admin)
	require.NoError(t, err)
	require.True(t, got.Active, "the version stays as it is")
	require.Equal(t, eventtype.ActionAmendmentProposed, got.Proposal.Action)
	require.JSONEq(t, openV1, string(got.DataSchema))
	require.JSONEq(t, counted, string(got.Amendment.DataSchema))
	_, err = b.amend(counted, second)
	require.Equal(t, "event_type.proposal_open", code(t, err))
	require.Equal(t, "event_type.same_person", code(t, b.confirmAmendment(admin)))
	require.NoError(t, b.confirmAmendment(second))
	versions, err := b.types.ListVersions(t.Context(), acme, lead)
	require.NoError(t, err)
	require.Nil(t, versions[0].Proposal)
	require.Nil(t, versions[0].Amendment)
	require.JSONEq(t, counted, string(versions[0].DataSchema))
	require.Len(t, versions[0].Schemas, 2)
	require.Equal(t, second.ID, versions[0].Schemas[1].By)
	_, err = b.amend(counted, admin)
	require.Equal(t, "event_type.duplicate", code(t, err))
}

// Examples are looked at as events are.
func TestAmend_Examples(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := version(1, openV1)
	first.Examples = append(first.Examples, []byte(`{"count":"many"}`))
	b.register(first)
	_, err := b.amend(openCounted, admin)
	require.Equal(t, "event_type.amendment_contradicted", code(t, err))
	f, _ := fault.As(err)
	require.Equal(t, "/count", f.Violations[0].Field)
	require.Contains(t, f.Violations[0].Detail, "example 0 of the version")
}

// An event between the proof and the amendment: nodes that know the proposal refuse one that
// contradicts it, and the confirmation looks again at what other nodes have taken.
func TestAmend_AppendBetween(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, openV1))
	late := *b
	late.node()
	require.NoError(t, late.append(0, lead, 1, `{"size":1}`)) // knows the version
	_, err := b.amend(openCounted, admin)
	require.NoError(t, err)

	contradicting := `{"size":1,"count":"many"}`
	require.Equal(t, "append.schema_violation", code(t, b.append(0, lead, 1, contradicting)))
	require.NoError(t, b.append(0, lead, 1, `{"size":1,"count":3,"colour":"red"}`))
	require.NoError(t, late.append(0, lead, 1, contradicting), "it does not know the proposal")
	require.Equal(t, "event_type.amendment_contradicted", code(t, b.confirmAmendment(second)))
	require.NoError(t, b.decide(func(d registry.Decision) error {
		_, err := b.types.Reject(t.Context(), d)
		return err
	}, second))
	require.NoError(t, b.append(0, lead, 1, contradicting), "as before the proposal")
	versions, err := b.types.ListVersions(t.Context(), acme, lead)
	require.NoError(t, err)
	require.True(t, versions[0].Active)
	require.JSONEq(t, openV1, string(versions[0].DataSchema))
}

// An upcaster may only succeed since the version that it leads to has a further member.
func TestAmend_ReadingID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	before := b.types.ReadingID(acme)
	_, err := b.amend(leadV1[:len(leadV1)-2]+`,"since":{"type":"integer"}}}`, admin)
	require.NoError(t, err)
	require.Equal(t, before, b.types.ReadingID(acme), "events of one version are read as they are")

	b.register(version(2, leadV2, from(1, rename)))
	before = b.types.ReadingID(acme)
	_, err = b.types.Register(t.Context(), version(2, leadV2[:len(leadV2)-2]+`,"since":{"type":"integer"}}}`, from(1, rename)), admin, registry.ProofRequest{})
	require.NoError(t, err)
	require.NotEqual(t, before, b.types.ReadingID(acme))
}
