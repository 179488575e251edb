package query

import (
	"cmp"
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// MaxLineageDepth bounds how many causes are followed, and how many levels of
// effects; the event asked for comes on top.
const MaxLineageDepth = 50

// MaxEvents bounds how many events an answer about causality shows; it is not paged.
const MaxEvents = 1000

// Reason says why an answer about causality does not have everything.
type Reason string

// The reasons.
const (
	ReasonDepth       Reason = "depth"        // there are more levels than are followed
	ReasonCount       Reason = "count"        // there are more events than were asked for; the nearest are shown
	ReasonSize        Reason = "size"         // there are more events, but together they are too large; see MaxPageBytes
	ReasonLegalEntity Reason = "legal_entity" // it goes on where the caller may not look
	ReasonMissing     Reason = "missing"      // the cause is in no log
	ReasonCycle       Reason = "cycle"        // the events name each other as their cause
)

// LeftOut is one place where an answer stops before its end.
type LeftOut struct {
	Reason Reason
	At     event.ID // the last event that is shown there; zero when it is no single one
}

// leftOut gathers places, each once.
type leftOut []LeftOut

func (l *leftOut) add(r Reason, at event.ID) {
	if p := (LeftOut{r, at}); !slices.Contains(*l, p) {
		*l = append(*l, p)
	}
}

// Lineage is a chain of causes.
type Lineage struct {
	Events    []event.Recorded // root first, the event asked for last
	LeftOut   []LeftOut        // at most one: why there are no earlier causes
	Truncated bool             // something was left out
}

// Lineage follows an event's causes to the root, across legal entities that the
// caller may see, as far as they have the bytes of a page.
func (s *Service) Lineage(ctx context.Context, le ports.LegalEntity, readableCodes []string, id event.ID) (Lineage, error) {
	visible, err := s.readableEntities(ctx, le.TenantID, readableCodes)
	if err != nil {
		return Lineage{}, err
	}
	var out Lineage
	ended := func(r Reason) (Lineage, error) {
		out.Truncated, out.LeftOut = true, []LeftOut{{r, out.Events[0].ID}}
		return out, nil
	}
	seen := map[ports.Cause]bool{}
	left := MaxPageBytes
	next := ports.Cause{Partition: le.Partition, ID: id}
	for {
		chain, cut, err := s.causality.Lineage(ctx, next.Partition, next.ID, MaxLineageDepth-len(out.Events), max(left, 1))
		if len(out.Events) > 0 && fault.KindOf(err) == fault.NotFound {
			return ended(ReasonMissing) // a raw append may name a cause that is in no log
		}
		if err != nil {
			return Lineage{}, err
		}
		for _, e := range slices.Backward(chain) {
			if seen[ports.Cause{Partition: e.Partition, ID: e.ID}] {
				return ended(ReasonCycle)
			}
			// A store gives one event at least, however little is left.
			if left -= len(e.Payload); left < 0 && len(out.Events) > 0 {
				return ended(ReasonSize)
			}
			seen[ports.Cause{Partition: e.Partition, ID: e.ID}] = true
			out.Events = slices.Insert(out.Events, 0, e)
		}
		root := out.Events[0]
		if !hasCause(root) {
			return out, nil
		}
		// The store ends at a cause that is elsewhere, or later in the same log, which
		// only written data can name.
		next = causeOf(&root)
		switch {
		case seen[next]:
			return ended(ReasonCycle)
		case len(out.Events) > MaxLineageDepth:
			return ended(ReasonDepth)
		case cut:
			return ended(ReasonSize)
		case next.Partition != root.Partition && !has(visible, next.Partition):
			return ended(ReasonLegalEntity)
		}
	}
}

func hasCause(e event.Recorded) bool { return e.CausedBy != event.ID{} }

// causeOf names what an event was caused by.
func causeOf(e *event.Recorded) ports.Cause {
	c := ports.Cause{Partition: e.CausedByPartition, ID: e.CausedBy}
	if c.Partition == 0 {
		c.Partition = e.Partition
	}
	return c
}

func has(entities []ports.LegalEntity, p event.PartitionID) bool {
	return slices.ContainsFunc(entities, func(le ports.LegalEntity) bool { return le.Partition == p })
}

// Descendant is an effect with its place in the tree.
type Descendant struct {
	Event  event.Recorded
	Parent event.ID // the event that caused it, shown too or the one asked for
	Depth  int      // 1: caused by the event asked for
}

// Descendants is the tree of what an event led to.
type Descendants struct {
	Events  []Descendant // level by level, a level in order of recording
	LeftOut []LeftOut    // at which events the tree goes on, and why that is not shown
}

// Descendants finds what an event led to, across legal entities that the caller may
// see, at most limit events: those that are nearest to it. Faults: event.not_found.
func (s *Service) Descendants(ctx context.Context, le ports.LegalEntity, readableCodes []string, id event.ID, limit int) (Descendants, error) {
	root, err := s.events.EventByID(ctx, le.Partition, id)
	if err != nil {
		return Descendants{}, err
	}
	all, err := s.readableEntities(ctx, le.TenantID, nil)
	if err != nil {
		return Descendants{}, err
	}
	w := &walk{causality: s.causality, root: &root, limit: limit, depths: map[ports.Cause]int{{Partition: root.Partition, ID: id}: 0}}
	var hidden []ports.LegalEntity
	for _, e := range all {
		if readable(readableCodes, e.Code) {
			w.visible = append(w.visible, e)
		} else {
			hidden = append(hidden, e)
		}
	}
	if err := w.run(ctx); err != nil {
		return Descendants{}, err
	}
	if err := w.look(ctx, hidden); err != nil {
		return Descendants{}, err
	}
	switch {
	case w.cut && len(w.found) < limit:
		w.left.add(ReasonSize, event.ID{})
	case w.cut:
		w.left.add(ReasonCount, event.ID{})
	}
	return Descendants{Events: w.found, LeftOut: w.left}, nil
}

// walk goes down the tree. The store follows effects inside a legal entity; the walk
// takes what was found to the others, until nothing new turns up.
type walk struct {
	causality ports.CausalityReader
	root      *event.Recorded
	visible   []ports.LegalEntity
	limit     int
	depths    map[ports.Cause]int // of everything found, and of the root
	found     []Descendant
	left      leftOut
	cut       bool
}

func (w *walk) run(ctx context.Context) error {
	fresh := []Descendant{{Event: *w.root}}
	for first := true; len(fresh) > 0; first = false {
		var next []Descendant
		for _, le := range w.visible {
			var causes []Descendant
			for _, d := range fresh {
				// The store has followed the effects in the event's own legal entity.
				if first || d.Event.Partition != le.Partition {
					causes = append(causes, d)
				}
			}
			got, err := w.effects(ctx, le.Partition, causes)
			if err != nil {
				return err
			}
			next = append(next, got...)
		}
		fresh = w.keep(next)
	}
	return nil
}

// effects asks one legal entity. When the limit cuts an answer for causes of several
// depths, the store cannot know which effects are nearest to the root, so it is asked
// again for each depth.
func (w *walk) effects(ctx context.Context, p event.PartitionID, causes []Descendant) ([]Descendant, error) {
	if len(causes) == 0 {
		return nil, nil
	}
	byDepth := map[int][]Descendant{}
	shallowest := causes[0].Depth
	for _, c := range causes {
		byDepth[c.Depth] = append(byDepth[c.Depth], c)
		shallowest = min(shallowest, c.Depth)
	}
	rows, more, err := w.ask(ctx, p, causes, shallowest)
	if err != nil {
		return nil, err
	}
	if more && len(byDepth) > 1 {
		rows, more = nil, false
		for depth, some := range byDepth {
			got, cut, err := w.ask(ctx, p, some, depth)
			if err != nil {
				return nil, err
			}
			rows, more = append(rows, got...), more || cut
		}
		slices.SortStableFunc(rows, func(a, b ports.Descendant) int { return cmp.Compare(a.Depth, b.Depth) })
	}
	w.cut = w.cut || more
	return w.place(rows), nil
}

// ask looks one level deeper than is shown, to see whether there is one. What the
// limit leaves out of that level is no loss.
func (w *walk) ask(ctx context.Context, p event.PartitionID, causes []Descendant, depth int) (rows []ports.Descendant, more bool, err error) {
	q := ports.DescendantQuery{Partition: p, MaxDepth: MaxLineageDepth + 1 - depth, Limit: w.limit + 1, Bytes: shareOfPage(len(w.visible))}
	for _, c := range causes {
		q.Causes = append(q.Causes, ports.Cause{Partition: c.Event.Partition, ID: c.Event.ID})
	}
	if p == w.root.Partition {
		q.Stop = w.root.Sequence
	}
	rows, more, err = w.causality.Descendants(ctx, q)
	return rows, more && rows[len(rows)-1].Depth < q.MaxDepth, err
}

// place gives each event that is new its parent and its depth under the root.
func (w *walk) place(rows []ports.Descendant) (out []Descendant) {
	for _, r := range rows {
		self, parent := ports.Cause{Partition: r.Event.Partition, ID: r.Event.ID}, causeOf(&r.Event)
		above, known := w.depths[parent]
		if !known {
			continue // of a branch that was cut
		}
		if _, again := w.depths[self]; again {
			// An event has one cause, so only the root can be met twice.
			if self == (ports.Cause{Partition: w.root.Partition, ID: w.root.ID}) {
				w.left.add(ReasonCycle, parent.ID)
			}
			continue
		}
		if above >= MaxLineageDepth {
			w.left.add(ReasonDepth, parent.ID)
			continue
		}
		w.depths[self] = above + 1
		out = append(out, Descendant{Event: r.Event, Parent: parent.ID, Depth: above + 1})
	}
	return out
}

// keep joins what is new to what was found before, leaves what is farthest from the
// root beyond the limit and the bytes of a page, and tells which of the new ones stay.
func (w *walk) keep(fresh []Descendant) []Descendant {
	w.found = append(w.found, fresh...)
	slices.SortFunc(w.found, func(a, b Descendant) int {
		return cmp.Or(cmp.Compare(a.Depth, b.Depth), a.Event.RecordedAt.Compare(b.Event.RecordedAt),
			cmp.Compare(a.Event.Partition, b.Event.Partition), cmp.Compare(a.Event.Sequence, b.Event.Sequence))
	})
	stay, bytes := 0, 0
	for ; stay < min(len(w.found), w.limit); stay++ {
		if bytes += len(w.found[stay].Event.Payload); bytes > MaxPageBytes && stay > 0 {
			break
		}
	}
	if stay == len(w.found) {
		return fresh
	}
	w.cut = true
	for _, d := range w.found[stay:] {
		delete(w.depths, ports.Cause{Partition: d.Event.Partition, ID: d.Event.ID})
	}
	w.found = slices.Clip(w.found[:stay])
	return slices.DeleteFunc(fresh, func(d Descendant) bool {
		_, stays := w.depths[ports.Cause{Partition: d.Event.Partition, ID: d.Event.ID}]
		return !stays
	})
}

// look finds the shown events that led to something out of the caller's sight.
func (w *walk) look(ctx context.Context, hidden []ports.LegalEntity) error {
	shown := []ports.Cause{{Partition: w.root.Partition, ID: w.root.ID}}
	for _, d := range w.found {
		shown = append(shown, ports.Cause{Partition: d.Event.Partition, ID: d.Event.ID})
	}
	for _, le := range hidden {
		q := ports.DescendantQuery{Partition: le.Partition, MaxDepth: 1, Limit: MaxEvents, WithoutData: true, Causes: shown}
		for more := true; more; {
			var effects []ports.Descendant
			var err error
			if effects, more, err = w.causality.Descendants(ctx, q); err != nil {
				return err
			}
			reported := map[ports.Cause]bool{}
			for _, d := range effects {
				w.left.add(ReasonLegalEntity, d.Event.CausedBy)
				reported[causeOf(&d.Event)] = true
			}
			q.Causes = slices.DeleteFunc(slices.Clone(q.Causes), func(c ports.Cause) bool { return reported[c] })
		}
	}
	return nil
}
