package query

import (
	"cmp"
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// MaxLineageDepth bounds how many causes, or levels of effects, are followed from the
// event asked for.
const MaxLineageDepth = 50

// MaxEvents bounds the events of an answer about causality, which is not paged.
const MaxEvents = 1000

// Reason is why an answer about causality is incomplete.
type Reason string

// The reasons.
const (
	ReasonDepth       Reason = "depth"        // more levels than MaxLineageDepth
	ReasonCount       Reason = "count"        // more events than the limit; those nearest to the event are listed
	ReasonSize        Reason = "size"         // more bytes of payloads than MaxPageBytes
	ReasonLegalEntity Reason = "legal_entity" // continues in a legal entity that the caller may not see
	ReasonEventType   Reason = "event_type"   // continues with an event of a type that the caller does not see
	ReasonMissing     Reason = "missing"      // the cause is in no log
	ReasonCycle       Reason = "cycle"        // the events name each other as their cause
)

// Omission is one place where an answer is incomplete.
type Omission struct {
	Reason Reason
	At     event.ID // the last event listed there; zero if there is no single one
}

// omissions collects omissions, each once.
type omissions []Omission

func (l *omissions) add(r Reason, at event.ID) {
	if p := (Omission{r, at}); !slices.Contains(*l, p) {
		*l = append(*l, p)
	}
}

// Lineage is a chain of causes.
type Lineage struct {
	Events    []event.Recorded // root first, the event asked for last
	Omissions []Omission       // at most one: why earlier causes are missing
	Truncated bool             // there is an omission
}

// Lineage follows an event's causes to the root, across the legal entities that the caller
// may see, up to MaxLineageDepth and MaxPageBytes.
func (s *Service) Lineage(ctx context.Context, le ports.LegalEntity, readableCodes []string, id event.ID) (Lineage, error) {
	visible, err := s.readableEntities(ctx, le.TenantID, readableCodes)
	if err != nil {
		return Lineage{}, err
	}
	sight, err := module.SightOf(ctx)
	if err != nil {
		return Lineage{}, err
	}
	var out Lineage
	endWith := func(r Reason) (Lineage, error) {
		out.Truncated, out.Omissions = true, []Omission{{r, out.Events[0].ID}}
		return out, nil
	}
	seen := map[ports.Cause]bool{}
	bytesLeft := MaxPageBytes
	next := ports.Cause{Partition: le.Partition, ID: id}
	for {
		chain, cut, err := s.events.Lineage(ctx, next.Partition, next.ID, MaxLineageDepth-len(out.Events), max(bytesLeft, 1))
		if len(out.Events) > 0 && fault.KindOf(err) == fault.NotFound {
			return endWith(ReasonMissing) // an append may name a cause that is in no log
		}
		if err != nil {
			return Lineage{}, err
		}
		for _, e := range slices.Backward(chain) {
			switch {
			case sight.Sees(e.Type):
			case len(out.Events) == 0:
				return Lineage{}, eventNotFound(id)
			default:
				return endWith(ReasonEventType)
			}
			if seen[ports.Cause{Partition: e.Partition, ID: e.ID}] {
				return endWith(ReasonCycle)
			}
			// The store returns at least one event, however few bytes are left.
			if bytesLeft -= len(e.Payload); bytesLeft < 0 && len(out.Events) > 0 {
				return endWith(ReasonSize)
			}
			seen[ports.Cause{Partition: e.Partition, ID: e.ID}] = true
			out.Events = slices.Insert(out.Events, 0, e)
		}
		root := out.Events[0]
		if !hasCause(root) {
			return out, nil
		}
		// The store stops at a cause in another log, or later in the same log, which only an
		// append with a wrong cause can name.
		next = causeOf(&root)
		switch {
		case seen[next]:
			return endWith(ReasonCycle)
		case len(out.Events) > MaxLineageDepth:
			return endWith(ReasonDepth)
		case cut:
			return endWith(ReasonSize)
		case next.Partition != root.Partition && !containsPartition(visible, next.Partition):
			return endWith(ReasonLegalEntity)
		}
	}
}

func hasCause(e event.Recorded) bool { return e.CausedBy != event.ID{} }

// causeOf is the cause of an event, with its partition resolved.
func causeOf(e *event.Recorded) ports.Cause {
	c := ports.Cause{Partition: e.CausedByPartition, ID: e.CausedBy}
	if c.Partition == 0 {
		c.Partition = e.Partition
	}
	return c
}

func containsPartition(entities []ports.LegalEntity, p event.PartitionID) bool {
	return slices.ContainsFunc(entities, func(le ports.LegalEntity) bool { return le.Partition == p })
}

// Descendant is an event of the tree of effects.
type Descendant struct {
	Event  event.Recorded
	Parent event.ID // its cause: another descendant, or the event asked for
	Depth  int      // 1: caused by the event asked for
}

// Descendants is the tree of an event's effects.
type Descendants struct {
	Events    []Descendant // level by level, a level in order of recording
	Omissions []Omission   // events whose effects are not listed, and why
}

// Descendants finds an event's direct and indirect effects, across the legal entities that
// the caller may see: at most limit events, those nearest to it. Faults: event.not_found.
func (s *Service) Descendants(ctx context.Context, le ports.LegalEntity, readableCodes []string, id event.ID, limit int) (Descendants, error) {
	sight, err := module.SightOf(ctx)
	if err != nil {
		return Descendants{}, err
	}
	root, err := s.byID(ctx, sight, le.Partition, id)
	if err != nil {
		return Descendants{}, err
	}
	all, err := s.readableEntities(ctx, le.TenantID, nil)
	if err != nil {
		return Descendants{}, err
	}
	w := &treeSearch{causality: s.events, sight: sight, root: &root, limit: limit, depths: map[ports.Cause]int{{Partition: root.Partition, ID: id}: 0}}
	var hidden []ports.LegalEntity
	for _, e := range all {
		if isReadable(readableCodes, e.Code) {
			w.visible = append(w.visible, e)
		} else {
			hidden = append(hidden, e)
		}
	}
	if err := w.collect(ctx); err != nil {
		return Descendants{}, err
	}
	if err := w.reportHiddenEffects(ctx, hidden); err != nil {
		return Descendants{}, err
	}
	switch {
	case w.cut && len(w.found) < limit:
		w.omitted.add(ReasonSize, event.ID{})
	case w.cut:
		w.omitted.add(ReasonCount, event.ID{})
	}
	return Descendants{Events: w.found, Omissions: w.omitted}, nil
}

// treeSearch collects the tree of effects. The store follows effects inside one legal
// entity; the search asks every other legal entity for effects of what was found, until
// nothing new is found.
type treeSearch struct {
	causality ports.CausalityReader
	sight     module.Sight
	root      *event.Recorded
	visible   []ports.LegalEntity
	limit     int
	depths    map[ports.Cause]int // of the root and of every event found
	found     []Descendant
	omitted   omissions
	cut       bool
}

func (w *treeSearch) collect(ctx context.Context) error {
	fresh := []Descendant{{Event: *w.root}}
	for first := true; len(fresh) > 0; first = false {
		var next []Descendant
		for _, le := range w.visible {
			var causes []Descendant
			for _, d := range fresh {
				// The store has already followed effects in the event's own legal entity.
				if first || d.Event.Partition != le.Partition {
					causes = append(causes, d)
				}
			}
			got, err := w.effectsIn(ctx, le.Partition, causes)
			if err != nil {
				return err
			}
			next = append(next, got...)
		}
		fresh = w.merge(next)
	}
	return nil
}

// effectsIn queries one legal entity. When the limit cuts an answer for causes of several
// depths, the store cannot know which effects are nearest to the root, so each depth is
// queried on its own.
func (w *treeSearch) effectsIn(ctx context.Context, p event.PartitionID, causes []Descendant) ([]Descendant, error) {
	if len(causes) == 0 {
		return nil, nil
	}
	byDepth := map[int][]Descendant{}
	shallowest := causes[0].Depth
	for _, c := range causes {
		byDepth[c.Depth] = append(byDepth[c.Depth], c)
		shallowest = min(shallowest, c.Depth)
	}
	rows, more, err := w.queryEffects(ctx, p, causes, shallowest)
	if err != nil {
		return nil, err
	}
	if more && len(byDepth) > 1 {
		rows, more = nil, false
		for depth, some := range byDepth {
			got, cut, err := w.queryEffects(ctx, p, some, depth)
			if err != nil {
				return nil, err
			}
			rows, more = append(rows, got...), more || cut
		}
		slices.SortStableFunc(rows, func(a, b ports.Descendant) int { return cmp.Compare(a.Depth, b.Depth) })
	}
	w.cut = w.cut || more
	return w.attachToParents(rows), nil
}

// queryEffects reads one level more than is listed, to see whether it exists; it does not
// matter if the limit cuts that level.
func (w *treeSearch) queryEffects(ctx context.Context, p event.PartitionID, causes []Descendant, depth int) (rows []ports.Descendant, more bool, err error) {
	q := ports.DescendantQuery{Partition: p, MaxDepth: MaxLineageDepth + 1 - depth, Limit: w.limit + 1, Bytes: pageBytesPerEntity(len(w.visible))}
	for _, c := range causes {
		q.Causes = append(q.Causes, ports.Cause{Partition: c.Event.Partition, ID: c.Event.ID})
	}
	if p == w.root.Partition {
		q.Stop = w.root.Sequence
	}
	rows, more, err = w.causality.Descendants(ctx, q)
	return rows, more && rows[len(rows)-1].Depth < q.MaxDepth, err
}

// attachToParents sets parent and depth of each new event.
func (w *treeSearch) attachToParents(rows []ports.Descendant) (out []Descendant) {
	for _, r := range rows {
		self, parent := ports.Cause{Partition: r.Event.Partition, ID: r.Event.ID}, causeOf(&r.Event)
		above, known := w.depths[parent]
		if !known {
			continue // its parent was dropped by the limit
		}
		if _, again := w.depths[self]; again {
			// An event has one cause, so only the root can be found twice.
			if self == (ports.Cause{Partition: w.root.Partition, ID: w.root.ID}) {
				w.omitted.add(ReasonCycle, parent.ID)
			}
			continue
		}
		if !w.sight.Sees(r.Event.Type) { // its effects have no known parent and are left out too
			w.omitted.add(ReasonEventType, parent.ID)
			continue
		}
		if above >= MaxLineageDepth {
			w.omitted.add(ReasonDepth, parent.ID)
			continue
		}
		w.depths[self] = above + 1
		out = append(out, Descendant{Event: r.Event, Parent: parent.ID, Depth: above + 1})
	}
	return out
}

// merge adds new events, drops those farthest from the root that exceed the limit or the
// bytes of a page, and returns the new events that were kept.
func (w *treeSearch) merge(fresh []Descendant) []Descendant {
	w.found = append(w.found, fresh...)
	slices.SortFunc(w.found, func(a, b Descendant) int {
		return cmp.Or(cmp.Compare(a.Depth, b.Depth), a.Event.RecordedAt.Compare(b.Event.RecordedAt),
			cmp.Compare(a.Event.Partition, b.Event.Partition), cmp.Compare(a.Event.Sequence, b.Event.Sequence))
	})
	keep, bytes := 0, 0
	for ; keep < min(len(w.found), w.limit); keep++ {
		if bytes += len(w.found[keep].Event.Payload); bytes > MaxPageBytes && keep > 0 {
			break
		}
	}
	if keep == len(w.found) {
		return fresh
	}
	w.cut = true
	for _, d := range w.found[keep:] {
		delete(w.depths, ports.Cause{Partition: d.Event.Partition, ID: d.Event.ID})
	}
	w.found = slices.Clip(w.found[:keep])
	return slices.DeleteFunc(fresh, func(d Descendant) bool {
		_, kept := w.depths[ports.Cause{Partition: d.Event.Partition, ID: d.Event.ID}]
		return !kept
	})
}

// reportHiddenEffects adds an omission for every listed event with effects in legal
// entities that the caller may not see.
func (w *treeSearch) reportHiddenEffects(ctx context.Context, hidden []ports.LegalEntity) error {
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
				w.omitted.add(ReasonLegalEntity, d.Event.CausedBy)
				reported[causeOf(&d.Event)] = true
			}
			q.Causes = slices.DeleteFunc(slices.Clone(q.Causes), func(c ports.Cause) bool { return reported[c] })
		}
	}
	return nil
}
