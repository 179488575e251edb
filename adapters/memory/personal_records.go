package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

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
func note[K comparable](notes map[shredding.Subject]map[K][]string, s event.SealedSubject, k K) {
	subject := shredding.Subject(s.Subject)
	if notes[subject] == nil {
		notes[subject] = map[K][]string{}
	}
	if _, noted := notes[subject][k]; !noted {
		notes[subject][k] = slices.Clone(s.Pointers)
	}
}

// PersonalRecords finds the records that hold sealed values of a person.
type PersonalRecords struct{ *state }

// CountPersonalRecords implements ports.PersonalRecords: events before intents, each
// by type and key class.
func (s *PersonalRecords) CountPersonalRecords(ctx context.Context, in event.PartitionID, subject shredding.Subject) ([]ports.PersonalCount, error) {
	return readPartition(ctx, s.state, in, func(p *partition) ([]ports.PersonalCount, error) {
		counts := map[ports.PersonalCount]ports.PersonalCount{} // by intent, type and class
		add := func(key ports.PersonalCount, fields int, at time.Time) {
			c, known := counts[key]
			if !known {
				c = key
			}
			c.Records, c.Fields = c.Records+1, c.Fields+int64(fields)
			if at.After(c.NewestAt) {
				c.NewestAt = at
			}
			counts[key] = c
		}
		for k, fields := range p.eventSubjects[subject] {
			e := p.at(k.sequence)
			add(ports.PersonalCount{Type: e.Type, Class: k.class}, len(fields), e.RecordedAt)
		}
		for k, fields := range p.intentSubjects[subject] {
			in := p.intents[k.id]
			add(ports.PersonalCount{Intent: true, Type: in.Type, Class: k.class}, len(fields), in.CreatedAt)
		}
		order := map[bool]int{true: 1} // of intents
		return list(maps.Values(counts), all, func(a, b ports.PersonalCount) int {
			return cmp.Or(order[a.Intent]-order[b.Intent], cmp.Compare(a.Type, b.Type), cmp.Compare(a.Class, b.Class))
		}), nil
	})
}

// PersonalEvents implements ports.PersonalRecords. A limit of 0 reads to the end.
func (s *PersonalRecords) PersonalEvents(ctx context.Context, in event.PartitionID, subject shredding.Subject, after event.Sequence, limit int) ([]event.Recorded, error) {
	return readPartition(ctx, s.state, in, func(p *partition) ([]event.Recorded, error) {
		noted := map[event.Sequence]bool{}
		for k := range p.eventSubjects[subject] {
			noted[k.sequence] = k.sequence > after
		}
		events := []event.Recorded{}
		for _, n := range first(list(maps.Keys(noted), func(n event.Sequence) bool { return noted[n] }, cmp.Compare), limit) {
			events = append(events, cloneRecorded(p.at(n), true))
		}
		return events, nil
	})
}

// PersonalIntents implements ports.PersonalRecords. A limit of 0 lists all.
func (s *PersonalRecords) PersonalIntents(ctx context.Context, in event.PartitionID, subject shredding.Subject, after event.ID, limit int) ([]event.ID, error) {
	return readPartition(ctx, s.state, in, func(p *partition) ([]event.ID, error) {
		noted := map[event.ID]bool{}
		for k := range p.intentSubjects[subject] {
			noted[k.id] = k.id.Compare(after) > 0
		}
		return first(list(maps.Keys(noted), func(id event.ID) bool { return noted[id] }, event.ID.Compare), limit), nil
	})
}
