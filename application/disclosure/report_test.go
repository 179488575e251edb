package disclosure_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/module"
	access "github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// personalStore is what there is about one person.
type personalStore struct {
	ports.PersonalRecords
	entity ports.LegalEntity
}

func (personalStore) CountPersonalRecords(_ context.Context, _ event.PartitionID, s shredding.Subject) ([]ports.PersonalCount, error) {
	return []ports.PersonalCount{
		{Type: "hr.employee.hired", Class: shredding.KeyRegulatory, Records: 3, Fields: 6, NewestAt: start},
		{Type: "hr.hire", Intent: true, Class: shredding.KeyStandard, Records: 1, Fields: 2, NewestAt: start},
	}, nil
}

func (personalStore) EventTypes(_ context.Context, tenantID string) ([]eventtype.Registration, int64, error) {
	if tenantID == "" {
		return nil, 0, nil
	}
	return []eventtype.Registration{
		{Type: "hr.employee.hired", SchemaVersion: 2, Description: "An employee was hired.", MinRetentionYears: 6},
		{Type: "hr.employee.hired", SchemaVersion: 1, Description: "Replaced."},
	}, 0, nil
}

func (personalStore) HoldersOfCopies() []string { return []string{"hr.staff", "hr.empty"} }

func (personalStore) CountCopies(_ context.Context, name string, _ event.PartitionID, _ shredding.Subject) (int64, error) {
	return map[string]int64{"hr.staff": 2}[name], nil
}

func (s personalStore) Erasures(context.Context, string, []shredding.ErasureState, int) ([]ports.ErasureRequest, error) {
	here := []event.PartitionID{s.entity.Partition, 999}
	return []ports.ErasureRequest{
		{ID: event.ID{1}, Subject: "employee:E-1", Partitions: here, State: shredding.ErasureCompleted, RequestedAt: start, DestroyedAt: start},
		{ID: event.ID{2}, Subject: "employee:E-2", Partitions: here}, {ID: event.ID{5}, Subject: "employee:E-1", Partitions: []event.PartitionID{999}},
	}, nil
}

func (personalStore) Holds(context.Context, string, shredding.Subject, event.Date) ([]ports.LegalHold, error) {
	until := event.MustDate("2027-12-31")
	return []ports.LegalHold{{ID: event.ID{3}, PlacedAt: start, Until: &until}, {ID: event.ID{4}, Partition: 999}}, nil
}

func newReports(f *fixture) *disclosure.Reports {
	s := personalStore{entity: f.entity}
	return disclosure.NewReports(disclosure.ReportsConfig{Service: f.service, Records: s, Types: s, Copies: s, Erasures: s})
}

var ownReport = disclosure.Purpose{Operation: "reportPersonalData", Reason: "request of the person", Subject: "employee:E-1"}

func TestOverview(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	o, err := newReports(f).Overview(t.Context(), officer, ownReport, []ports.LegalEntity{f.entity})
	require.NoError(t, err)
	require.Equal(t, disclosure.Overview{
		Erasures: []disclosure.ErasureOfPerson{{ID: event.ID{1}.String(), Status: "completed", RequestedAt: start, DestroyedAt: start}},
		Holds:    []disclosure.HoldOfPerson{{ID: event.ID{3}.String(), PlacedAt: start, Until: "2027-12-31"}},
		Records: []disclosure.RecordsOfPerson{
			{LegalEntity: "USMF", Record: "event", Type: "hr.employee.hired", Purpose: "An employee was hired.", RetentionClass: "regulatory", RetentionYears: 6, Records: 3, Values: 6, NewestAt: start},
			{LegalEntity: "USMF", Record: "intent", Type: "hr.hire", RetentionClass: "standard", Records: 1, Values: 2, NewestAt: start},
		},
		Copies: []disclosure.CopiesOfPerson{{LegalEntity: "USMF", ReadModel: "hr.staff", Rows: 2}},
	}, o)
	recorded := f.search(t, ports.AccessQuery{Kind: access.Report})
	require.Len(t, recorded, 1)
	require.Equal(t, []string{"p-officer", "employee:E-1", "USMF", "request of the person"},
		[]string{recorded[0].PersonID, recorded[0].Subject.String(), recorded[0].LegalEntity, recorded[0].Reason})

	f.store.refusal = fault.New(fault.Unavailable, "store.unavailable", "the database does not answer; try again")
	_, err = newReports(f).Overview(t.Context(), officer, ownReport, []ports.LegalEntity{f.entity})
	require.ErrorIs(t, err, f.store.refusal)
}

// What a report opens is recorded as that of a report.
func TestReader_OfReport(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r, err := f.service.Reader(t.Context(), officer, ownReport)
	require.NoError(t, err)
	require.True(t, r.Reads("any.type", shredding.Health))
	require.NoError(t, r.Disclose(t.Context(), []module.Opened{{Partition: f.entity.Partition, Subject: "employee:E-1", Class: shredding.Health, Values: 1}}))
	require.Equal(t, access.Report, f.search(t, ports.AccessQuery{})[0].Kind)
}

func TestMaskOthers(t *testing.T) {
	t.Parallel()
	key, err := shredding.NewKey(shredding.KeyStandard, 1, make([]byte, shredding.DEKSize))
	require.NoError(t, err)
	at := shredding.Location{Partition: 7, Kind: shredding.KindEvent, Record: event.ID{1}, Type: "hr.employee.hired", SchemaVersion: 1}
	sealed, err := shredding.SealDocument(nil, []byte(`{"data":{"name":"Ada","boss":"Bea","grade":1.50}}`), []shredding.Field{
		{Pointer: "/data/name", Class: shredding.Identity, Subject: "employee:E-1"}, {Pointer: "/data/boss", Class: shredding.Identity, Subject: "employee:E-2"},
	}, func(field shredding.Field, value []byte) (shredding.Envelope, error) {
		at.Pointer = field.Pointer
		return shredding.Seal(key, at, field.Subject, value)
	})
	require.NoError(t, err)
	masked, err := disclosure.MaskOthers(sealed, "employee:E-1")
	require.NoError(t, err)
	opened, err := shredding.OpenDocument(nil, masked, func(s shredding.Sealed) (shredding.Answer, error) {
		at.Pointer = s.Pointer
		plain, err := shredding.Open(key, at, s.Subject, s.Envelope)
		return shredding.Clear(plain), err
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"data":{"name":"Ada","boss":"[MASKED]","grade":1.50}}`, string(opened))
	plain := []byte(`{"data":{"grade":1.50}}`)
	same, err := disclosure.MaskOthers(plain, "employee:E-1")
	require.NoError(t, err)
	require.Equal(t, plain, same)
}
