package conformance

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// runInstallation uses a separate store, since bootstrapping cannot be undone.
func runInstallation(t *testing.T, h EventStoreHarness) {
	clock := NewClock()
	store := h.New(t, clock)
	ctx := context.Background()
	want := ports.Installation{LogName: LogName, Deployment: Deployment, CreatedAt: clock.Now()}

	t.Run("store before bootstrap has no installation", func(t *testing.T) {
		_, err := store.Installation(ctx)
		require.Equal(t, "installation.not_bootstrapped", fault.CodeOf(err))
	})
	t.Run("bootstrap stores the installation", func(t *testing.T) {
		require.NoError(t, store.Bootstrap(ctx, want))
		requireInstallation(t, want, store)
	})
	t.Run("repeated bootstrap changes nothing", func(t *testing.T) {
		clock.Advance(time.Hour)
		again := want
		again.CreatedAt = clock.Now()
		require.NoError(t, store.Bootstrap(ctx, again))
		requireInstallation(t, want, store)
	})
	t.Run("another log name is refused", func(t *testing.T) {
		other := want
		other.LogName = "another.example.org"
		require.Equal(t, "installation.log_name_fixed", fault.CodeOf(store.Bootstrap(ctx, other)))
		requireInstallation(t, want, store)
	})
}

func requireInstallation(t *testing.T, want ports.Installation, s ports.Installations) {
	t.Helper()
	got, err := s.Installation(context.Background())
	require.NoError(t, err)
	require.True(t, want.CreatedAt.Equal(got.CreatedAt))
	got.CreatedAt = want.CreatedAt
	require.Equal(t, want, got)
}

var legalEntityPromises = []promise{
	{"code is unique in its tenant", legalEntityDuplicate},
	{"list of a tenant is sorted by code", legalEntityList},
	{"administrative log is listed apart from legal entities", administrativeLog},
	{"partition number contains its deployment", partitionNumber},
}

func legalEntityDuplicate(t *testing.T, s *suite) {
	ctx := context.Background()
	tenant := s.unique("tenant")
	want := s.legalEntity(tenant, "DEMF")
	got, err := s.store.CreateLegalEntity(ctx, want)
	require.NoError(t, err)
	require.NotZero(t, got.Partition)
	_, err = s.store.CreateLegalEntity(ctx, want)
	require.Equal(t, "legal_entity.duplicate", fault.CodeOf(err))
	other, err := s.store.CreateLegalEntity(ctx, s.legalEntity(s.unique("tenant"), "DEMF"))
	require.NoError(t, err)
	require.NotEqual(t, got.Partition, other.Partition)
	list, err := s.store.LegalEntities(ctx, tenant)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.True(t, want.CreatedAt.Equal(list[0].CreatedAt))
	want.Partition, list[0].CreatedAt = got.Partition, want.CreatedAt
	require.Equal(t, want, list[0])
}

func legalEntityList(t *testing.T, s *suite) {
	ctx := context.Background()
	tenant := s.unique("tenant")
	for _, code := range []string{"USMF", "DEMF", "GBSI"} {
		_, err := s.store.CreateLegalEntity(ctx, s.legalEntity(tenant, code))
		require.NoError(t, err)
	}
	codes := func(tenant string) []string {
		list, err := s.store.LegalEntities(ctx, tenant)
		require.NoError(t, err)
		out := []string{}
		for _, le := range list {
			out = append(out, le.Code)
		}
		return out
	}
	require.Equal(t, []string{"DEMF", "GBSI", "USMF"}, codes(tenant))
	require.Subset(t, codes(""), []string{"DEMF", "GBSI", "USMF"})
	require.Greater(t, len(codes("")), 3)
}

func administrativeLog(t *testing.T, s *suite) {
	ctx := context.Background()
	tenant := s.unique("tenant")
	none, err := s.store.AdministrativeLogs(ctx, tenant)
	require.NoError(t, err)
	require.Empty(t, none)
	log, err := s.store.CreateLegalEntity(ctx, s.legalEntity(tenant, ports.AdministrativeCode))
	require.NoError(t, err)
	_, err = s.store.CreateLegalEntity(ctx, s.legalEntity(tenant, ports.AdministrativeCode))
	require.Equal(t, "legal_entity.duplicate", fault.CodeOf(err))
	books, err := s.store.LegalEntities(ctx, tenant)
	require.NoError(t, err)
	require.Empty(t, books)
	heads, err := s.store.PartitionHeads(ctx)
	require.NoError(t, err)
	require.True(t, heads[log.Partition].Administrative)
	require.False(t, heads[s.newPartition(t).le.Partition].Administrative)
	for _, of := range []string{tenant, ""} {
		logs, err := s.store.AdministrativeLogs(ctx, of)
		require.NoError(t, err)
		i := slices.IndexFunc(logs, func(le ports.LegalEntity) bool { return le.Partition == log.Partition })
		require.GreaterOrEqual(t, i, 0)
		require.Equal(t, tenant, logs[i].TenantID)
		require.Equal(t, ports.AdministrativeCode, logs[i].Code)
	}
	le, err := s.store.CreateLegalEntity(ctx, s.legalEntity(tenant, "USMF"))
	require.NoError(t, err)
	both, err := s.store.Partitions(ctx, tenant)
	require.NoError(t, err)
	require.Equal(t, []ports.LegalEntity{le, log}, both)
}

func partitionNumber(t *testing.T, s *suite) {
	b := s.newPartition(t)
	require.Equal(t, event.PartitionID(Deployment), b.le.Partition>>19)
	require.NotZero(t, b.le.Partition&(1<<19-1))
}

var registryPromises = []promise{
	{"every registration raises the generation", generation},
	{"version is registered once", typeOnce},
	{"versions of a type share its number", typeNumber},
	{"every field of a registration is read as written", registrationFields},
}

func generation(t *testing.T, s *suite) {
	ctx := context.Background()
	before := s.generation(t)
	s.register(t, "conformance.generation.grew")
	after := s.generation(t)
	require.Greater(t, after, before)
	_, listed, err := s.store.SharedEventTypes(ctx)
	require.NoError(t, err)
	require.Equal(t, after, listed)
}

func typeOnce(t *testing.T, s *suite) {
	ctx := context.Background()
	s.register(t, "conformance.once.registered")
	before := s.generation(t)
	_, err := s.store.RegisterEventType(ctx, registration("conformance.once.registered", 1, s.clock.Now()))
	require.Equal(t, "event_type.duplicate", fault.CodeOf(err))
	after := s.generation(t)
	require.Equal(t, before, after, "a refused registration is no change")
}

func typeNumber(t *testing.T, s *suite) {
	first := s.register(t, "conformance.number.shared")
	second, err := s.store.RegisterEventType(context.Background(), registration("conformance.number.shared", 2, s.clock.Now()))
	require.NoError(t, err)
	require.Equal(t, first.Number, second.Number)
	require.NotZero(t, first.Number)
	numbers := map[int32]string{}
	types, _, err := s.store.SharedEventTypes(context.Background())
	require.NoError(t, err)
	for _, r := range types {
		if name, taken := numbers[r.Number]; taken {
			require.Equal(t, name, r.Type, "two types share a number")
		}
		numbers[r.Number] = r.Type
	}
}

func registrationFields(t *testing.T, s *suite) {
	want := registration("conformance.fields.kept", 1, s.clock.Now())
	want.RequiredDimensions, want.OptionalDimensions = []string{"cost_center"}, []string{"project"}
	want.RequiredEntityRefs = []eventtype.RequiredRef{{EntityType: "vendor", Role: "supplier", Cardinality: eventtype.One}}
	want.RetentionClass, want.MinRetentionYears = eventtype.Regulatory, 10
	want.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "invoice", Fields: []string{"vendor", "number"}, Normalise: eventtype.NormaliseDocumentNumber, Document: "id"}}
	given, err := s.store.RegisterEventType(context.Background(), want)
	require.NoError(t, err)
	types, _, err := s.store.SharedEventTypes(context.Background())
	require.NoError(t, err)
	for _, got := range types {
		if got.Type != want.Type {
			continue
		}
		require.Equal(t, given.Number, got.Number)
		require.True(t, want.RegisteredAt.Equal(got.RegisteredAt))
		require.JSONEq(t, string(want.DataSchema), string(got.DataSchema))
		require.Empty(t, got.PIIFields)
		require.Empty(t, got.Examples)
		got.Number, got.RegisteredAt, got.DataSchema = want.Number, want.RegisteredAt, want.DataSchema
		got.PIIFields, got.Examples = want.PIIFields, want.Examples
		require.Equal(t, want, got)
		return
	}
	t.Fatal("the registration is not listed")
}
