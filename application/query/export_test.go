package query

import "github.com/erpbackbone/backbone/domain/event"

// SetScan replaces MaxScan.
func (s *Service) SetScan(n int) { s.scan = n }

// CachedEvents counts the events in the tails of all partitions.
func (f *Feeds) CachedEvents() (n int) {
	for _, one := range f.tails.byPartition {
		n += len(one.events)
	}
	return n
}

// References returns the entity references of events.
func References(events []event.Recorded) ([]event.EntityRef, error) {
	var r entityRefs
	for i := range events {
		if err := r.add(&events[i]); err != nil {
			return nil, err
		}
	}
	return r.found, nil
}
