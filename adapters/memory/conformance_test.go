package memory_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	keys := memory.NewKeyStore()
	conformance.RunEventStore(t, conformance.EventStoreHarness{
		New: func(_ *testing.T, clock ports.Clock) conformance.Store {
			return conformance.NewMemoryStore(memory.Config{Clock: clock, Keys: keys})
		},
		Keys: func(*testing.T, conformance.Store) *conformance.KeyRegister {
			return conformance.NewKeyRegister(keys, keys.Rotation(), keys.Erasures())
		},
		Leases: func(s conformance.Store) ports.Leases { return s.(conformance.MemoryStore).Database.Leases },
		ReadModel: func(_ *testing.T, s conformance.Store) conformance.ReadModel {
			return conformance.MemoryReadModel{ReadModels: s.(conformance.MemoryStore).Database.ReadModels}
		},
		ConditionRaces: 1000,
	})
}

func newMemoryStore(_ *testing.T, clock ports.Clock) conformance.SubscriptionStore {
	return conformance.NewMemoryStore(memory.Config{Clock: clock})
}

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	conformance.RunSubscriptions(t, newMemoryStore)
}

func TestSubscriptions_ConcurrentConsumers(t *testing.T) {
	t.Parallel()
	conformance.RunConsumersTogether(t, newMemoryStore)
}

func TestSubscriptions_ConcurrentDeliveries(t *testing.T) {
	t.Parallel()
	conformance.RunDeliveryRace(t, newMemoryStore, 400)
}

func TestSubscriptions_BytesOfPoll(t *testing.T) {
	t.Parallel()
	conformance.RunDeliveryBytes(t, newMemoryStore)
}

func TestSubscriptions_StartAtCursorOfFeed(t *testing.T) {
	t.Parallel()
	conformance.RunHandover(t, func(_ *testing.T, clock ports.Clock) conformance.FeedStore {
		return conformance.NewMemoryStore(memory.Config{Clock: clock})
	}, 160)
}

func TestKeyService(t *testing.T) {
	t.Parallel()
	service := memory.NewKeyService(system.Clock{})
	conformance.RunKeyService(t, conformance.KeyServiceHarness{
		New:           func(*testing.T, func(http.RoundTripper) http.RoundTripper) conformance.KeyService { return service },
		Administrator: service, InProcess: true,
	})
}

func TestWebhookEndpoints(t *testing.T) {
	t.Parallel()
	conformance.RunWebhookEndpoints(t, memory.New(memory.Config{}).Webhooks)
}

func TestPublisherCursors(t *testing.T) {
	t.Parallel()
	conformance.RunPublisherCursors(t, func(*testing.T) ports.PublisherCursors {
		return memory.New(memory.Config{Clock: system.Clock{}}).Publishers
	})
}

func TestLeases(t *testing.T) {
	t.Parallel()
	conformance.RunLeases(t, func(*testing.T) conformance.LeaseHarness {
		clock := conformance.NewClock()
		return conformance.LeaseHarness{Leases: memory.New(memory.Config{Clock: clock}).Leases, Pass: clock.Advance}
	})
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	conformance.RunAccessLog(t, conformance.AccessLogHarness{
		Accesses: memory.New(memory.Config{Clock: clock}).AccessLog, Age: func(_ *testing.T, by time.Duration) { clock.Advance(by) },
	})
}

func TestBlindIndex(t *testing.T) {
	t.Parallel()
	conformance.RunBlindIndex(t, memory.New(memory.Config{}).BlindIndex)
}

func TestPapers(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	d := memory.New(memory.Config{Clock: clock})
	conformance.RunPapers(t, conformance.PapersHarness{
		Papers: d.Papers, Appender: d.Appender, Directory: d.Directory, Types: d.Registry, Age: func(_ *testing.T, by time.Duration) { clock.Advance(by) },
	})
}

func TestRecordedSubscriptions(t *testing.T) {
	t.Parallel()
	conformance.RunRecordedSubscriptions(t, newMemoryStore)
}

func TestGlobalLog(t *testing.T) {
	t.Parallel()
	conformance.RunGlobalLog(t, func(*testing.T) conformance.GlobalLogHarness {
		d := memory.New(memory.Config{})
		return conformance.GlobalLogHarness{GlobalLog: d.GlobalLog, Appender: d.Appender, Directory: d.Directory, Types: d.Registry}
	})
}
