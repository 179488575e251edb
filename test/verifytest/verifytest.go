// Package verifytest makes stores that tests verify.
package verifytest

import (
	"context"
	"iter"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Store is what a verification reads of a database in memory, for tests of the administrative
// log. It has no rows beside the events of legal entities: keys, numbers, streams, persons and
// types are not judged.
type Store struct {
	*memory.Audit
	*memory.EventReader
	*memory.Intents
	*memory.Directory
	*memory.Registry
	*memory.SubscriptionStore
	*memory.Webhooks
	*memory.AccessLog
	*memory.ProjectionVersions
	*memory.Papers
}

// Of returns the store of a database.
func Of(d *memory.Database) Store {
	return Store{d.Audit, d.Events, d.Intents, d.Directory, d.Registry, d.Subscriptions, d.Webhooks, d.AccessLog, d.ProjectionVersions, d.Papers}
}

// RegistryRecord reads no types: the built-in ones of a test are not those that its log lists.
func (Store) RegistryRecord(_ context.Context, tenantID string) (ports.RegistryRecord, error) {
	return ports.RegistryRecord{TenantID: tenantID}, nil
}

// Redactions implements ports.RedactionReader.
func (Store) Redactions(context.Context, event.PartitionID) ([]ports.Redaction, error) {
	return nil, nil
}

// PersonalRows implements ports.ChainAudit.
func (Store) PersonalRows(context.Context, event.PartitionID, event.Sequence) iter.Seq2[ports.PersonalRow, error] {
	return none[ports.PersonalRow]
}

// PersonalKeys implements ports.ChainAudit.
func (Store) PersonalKeys(context.Context, event.PartitionID, ports.PersonalKey, int) ([]ports.PersonalKey, error) {
	return nil, nil
}

// EventKeys implements ports.ChainAudit.
func (Store) EventKeys(context.Context, event.PartitionID, event.Sequence, event.Sequence) iter.Seq2[ports.EventKey, error] {
	return none[ports.EventKey]
}

// BusinessKeys implements ports.ChainAudit.
func (Store) BusinessKeys(context.Context, event.PartitionID, event.Sequence, event.Sequence) iter.Seq2[ports.ClaimedKey, error] {
	return none[ports.ClaimedKey]
}

// RequestKeys implements ports.ChainAudit.
func (Store) RequestKeys(context.Context, event.PartitionID) iter.Seq2[ports.RequestKey, error] {
	return none[ports.RequestKey]
}

// NumberSeries implements ports.ChainAudit.
func (Store) NumberSeries(context.Context, event.PartitionID) ([]ports.NumberSeries, error) {
	return nil, nil
}

// Readers implements ports.ChainAudit.
func (Store) Readers(context.Context, event.PartitionID) ([]ports.LogReader, error) { return nil, nil }

// DeliveryDamage implements ports.ChainAudit.
func (Store) DeliveryDamage(context.Context, event.PartitionID, int) ([]ports.DeliveryDamage, error) {
	return nil, nil
}

// UnlistedPartitions implements ports.ChainAudit.
func (Store) UnlistedPartitions(context.Context) ([]event.PartitionID, error) { return nil, nil }

// CountEvents implements ports.ChainAudit.
func (Store) CountEvents(context.Context, event.PartitionID, event.Sequence) (uint64, error) {
	return 0, nil
}

// ExtraPayloads implements ports.ChainAudit. In memory an event holds its payload.
func (Store) ExtraPayloads(context.Context, event.PartitionID, int) ([]event.Sequence, error) {
	return nil, nil
}

// StreamRows implements ports.ChainAudit.
func (Store) StreamRows(context.Context, event.PartitionID, []event.StreamID) ([]ports.StreamRow, error) {
	return nil, nil
}

// StreamRowsWithEnds implements ports.ChainAudit.
func (Store) StreamRowsWithEnds(context.Context, event.PartitionID, event.StreamID, int) (ports.StreamRowPage, error) {
	return ports.StreamRowPage{}, nil
}

// CountStreamRows implements ports.ChainAudit.
func (Store) CountStreamRows(context.Context, event.PartitionID, event.Sequence) (uint64, error) {
	return 0, nil
}

func none[T any](func(T, error) bool) {}
