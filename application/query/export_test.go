package query

import "github.com/erpbackbone/backbone/domain/event"

// SetScan looks at fewer events for a page than MaxScan.
func (s *Service) SetScan(n int) { s.scan = n }

// Kept counts the events that are kept of the ends of all partitions.
func (f *Feeds) Kept() (n int) {
	for _, one := range f.tails.byPartition {
		n += len(one.run)
	}
	return n
}

// References are what events are about.
func References(events []event.Recorded) ([]event.EntityRef, error) {
	var r refs
	for i := range events {
		if err := r.add(&events[i]); err != nil {
			return nil, err
		}
	}
	return r.found, nil
}
