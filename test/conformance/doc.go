// Package conformance checks that an adapter keeps what the ports promise. One body of tests
// runs against every adapter: no test is skipped, and none depends on the adapter. Each
// sub-test is named for the behaviour that it checks.
//
// A suite is a function; an adapter's test calls it with a constructor of empty stores:
//
//	RunEventStore        the log, its directories and registry, and its read models: see Store
//	RunKeyStore          ports.SubjectKeys, KeyEvictions, ErasureRegister, KeyRotation, KeyRecovery
//	RunKeyService        ports.DataKeys, KeyLifecycle, Signer: clients of a key management service
//	RunLeases            ports.Leases
//	RunSubscriptions     ports.Subscriptions, Deliveries, SubscriptionDeadLetters
//	RunDeliveryRace      a subscriptions.Service over them: order under concurrent consumers
//	RunConsumersTogether the same: consumers of one legal entity do not wait for each other
//	RunDeliveryBytes     the same: byte limits of polls
//	RunHandover          the same: a reader continues a live feed with a subscription
//	RunPublisherCursors  ports.PublisherCursors
//	RunExportStore       ports.ExportStore
//	RunWebhookEndpoints  ports.WebhookEndpoints, WebhookAttempts
//
// A store that passes RunEventStore has proved nothing about the rest. Leases and keys occur there
// only to fence a projection and to seal an event.
//
// # A new adapter
//
// Write a test in the adapter's package that fills the harness of the suite and calls it:
//
//	func TestConformance(t *testing.T) {
//		conformance.RunEventStore(t, conformance.EventStoreHarness{
//			New:       func(t *testing.T, clock ports.Clock) conformance.Store { ... },
//			ReadModel: func(t *testing.T, s conformance.Store) conformance.ReadModel { ... },
//			Keys:      func(t *testing.T, s conformance.Store) *conformance.KeyRegister { ... },
//			Leases:    func(s conformance.Store) ports.Leases { ... },
//
//			ConditionRaces: 1000,
//		})
//	}
//
// adapters/memory/conformance_test.go is the shortest example, adapters/postgres has the same
// with a database for each store. Then run it, or one behaviour of it:
//
//	go test ./adapters/mine -run TestConformance
//	go test ./adapters/mine -run TestConformance/Append/batch_is_stored_in_the_given_order
//
// # A new promise
//
// A sub-test that cannot fail proves nothing, so the tests of this package run the suites on
// implementations that break one promise each, and demand that the sub-test of that promise fails.
// To add a promise of the event store, write the sub-test, a wrapper in a breakage_*_test.go that
// breaks it, and its line in broken_test.go. The broken suite runs in a child process, since the
// process that reports a failure cannot take it back. A misspelled name in broken_test.go fails on
// the sound store; a promise without a breakage is noticed by no test.
//
// NewSubscriptionFixture, NewDeliveryFixture, NewMemoryStore and the limits of services
// (DeliveryLimits, ProjectorLimits) also serve tests of the application.
package conformance
