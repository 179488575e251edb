package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// eventClass and intentClass name a record and the class of the key that values in
// it are sealed with.
type (
	eventClass struct {
		sequence event.Sequence
		class    shredding.KeyClass
	}
	intentClass struct {
		id    event.ID
		class shredding.KeyClass
	}
)

func (p *partition) noteEvent(e *event.Prepared) {
	for _, s := range e.Sealed {
		note(p.eventSubjects, s, eventClass{e.Sequence, shredding.KeyClass(s.KeyClass)})
	}
}

func (p *partition) noteIntent(w *ports.IntentWrite) {
	for _, s := range w.Sealed {
		note(p.intentSubjects, s, intentClass{w.Intent.ID, shredding.KeyClass(s.KeyClass)})
	}
}

// note keeps the first note of a record, subject and class.
func note[K comparable](notes map[shredding.Subject]map[K]int, s event.SealedSubject, k K) {
	subject := shredding.Subject(s.Subject)
	if notes[subject] == nil {
		notes[subject] = map[K]int{}
	}
	if _, noted := notes[subject][k]; !noted {
		notes[subject][k] = len(s.Pointers)
	}
}

// CountPersonalRecords implements ports.PersonalRecords: events before intents, each
// by type and key class.
func (s *PersonalRecords) CountPersonalRecords(ctx context.Context, partition event.PartitionID, subject shredding.Subject) ([]ports.PersonalCount, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	counts := []ports.PersonalCount{}
	p, ok := s.partitions[partition]
	if !ok {
		return counts, nil
	}
	add := func(c ports.PersonalCount) {
		i := slices.IndexFunc(counts, func(x ports.PersonalCount) bool {
			return x.Intent == c.Intent && x.Type == c.Type && x.Class == c.Class
		})
		if i < 0 {
			counts = append(counts, c)
			return
		}
		x := &counts[i]
		x.Records, x.Fields = x.Records+c.Records, x.Fields+c.Fields
		if c.NewestAt.After(x.NewestAt) {
			x.NewestAt = c.NewestAt
		}
	}
	for k, fields := range p.eventSubjects[subject] {
		e := p.at(k.sequence)
		add(ports.PersonalCount{Type: e.Type, Class: k.class, Records: 1, Fields: int64(fields), NewestAt: e.RecordedAt})
	}
	for k, fields := range p.intentSubjects[subject] {
		in := p.intents[k.id]
		add(ports.PersonalCount{Intent: true, Type: in.Type, Class: k.class, Records: 1, Fields: int64(fields), NewestAt: in.CreatedAt})
	}
	slices.SortFunc(counts, func(a, b ports.PersonalCount) int {
		switch {
		case a.Intent == b.Intent:
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Class, b.Class))
		case a.Intent:
			return 1
		default:
			return -1
		}
	})
	return counts, nil
}

// PersonalEvents implements ports.PersonalRecords. A limit of 0 reads to the end.
func (s *PersonalRecords) PersonalEvents(ctx context.Context, partition event.PartitionID, subject shredding.Subject, after event.Sequence, limit int) ([]event.Recorded, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	events := []event.Recorded{}
	p, ok := s.partitions[partition]
	if !ok {
		return events, nil
	}
	var sequences []event.Sequence
	for k := range p.eventSubjects[subject] {
		if k.sequence > after {
			sequences = append(sequences, k.sequence)
		}
	}
	slices.Sort(sequences)
	for _, n := range first(slices.Compact(sequences), limit) {
		events = append(events, cloneRecorded(p.at(n), true))
	}
	return events, nil
}

// PersonalIntents implements ports.PersonalRecords. A limit of 0 lists all.
func (s *PersonalRecords) PersonalIntents(ctx context.Context, partition event.PartitionID, subject shredding.Subject, after event.ID, limit int) ([]event.ID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	ids := []event.ID{}
	p, ok := s.partitions[partition]
	if !ok {
		return ids, nil
	}
	for k := range p.intentSubjects[subject] {
		if bytes.Compare(k.id[:], after[:]) > 0 {
			ids = append(ids, k.id)
		}
	}
	slices.SortFunc(ids, func(a, b event.ID) int { return bytes.Compare(a[:], b[:]) })
	return first(slices.Compact(ids), limit), nil
}

// first cuts a page off.
func first[T any](all []T, limit int) []T {
	if limit > 0 && len(all) > limit {
		return all[:limit]
	}
	return all
}
