package appender

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// head is the end of a partition's chain.
type head struct {
	genesis event.Hash
	stored  ports.Head // as read under the lock
	current ports.Head // after the events that the group has accepted so far
}

// verdict is the decision about one request of a group.
type verdict struct {
	err           *fault.Error
	holder        event.Sequence            // of the event because of which it is refused: nameHolder adds it to err; 0: none
	replay        *ports.IdempotencyOutcome // of the first request with its idempotency key; nil: it is no repetition
	first         int                       // index of its first event in the group
	count         int
	headSequence  event.Sequence // of the partition, before the request; after it, once it is accepted
	writes        bool           // it has rows to write
	outcome       ports.IdempotencyOutcome
	partitionHead *head // nil: the partition is unknown
}

// overlay holds the rows that accepted requests of the group will write; later requests are
// decided against them. A request enters it only when it is accepted, so a refusal has
// nothing to undo.
type overlay struct {
	streams     map[streamKey]streamRow
	idempotency map[textKey]idempotencyRow
	business    map[businessKey]businessRow
	entities    map[textKey]event.Sequence
	series      map[textKey]uint64
	intents     map[idKey]int
}

func newOverlay() overlay {
	return overlay{
		streams: map[streamKey]streamRow{}, idempotency: map[textKey]idempotencyRow{}, business: map[businessKey]businessRow{},
		entities: map[textKey]event.Sequence{}, series: map[textKey]uint64{}, intents: map[idKey]int{},
	}
}

func (o *overlay) reset() {
	clear(o.streams)
	clear(o.idempotency)
	clear(o.business)
	clear(o.entities)
	clear(o.series)
	clear(o.intents)
}

// decideAll decides every request in order. A key may become known only here, such as a
// stream id that contains a series number. Then the facts have pending lookups and gave zero
// rows for them, so the verdicts are not valid: the caller reads the rows and calls decideAll
// again.
func (g *group) decideAll(ws []*queuedRequest, now time.Time) {
	g.overlay.reset()
	g.events = g.events[:0]
	g.verdicts = g.verdicts[:0]
	for _, h := range g.heads {
		h.current = h.stored
	}
	for _, w := range ws {
		v := verdict{first: len(g.events)}
		g.decide(w, now, &v)
		if v.err != nil {
			clear(g.events[v.first:])
			g.events = g.events[:v.first]
		}
		g.verdicts = append(g.verdicts, v)
	}
}

func (g *group) decide(w *queuedRequest, now time.Time, v *verdict) {
	r := w.request
	h, known := g.heads[r.Partition]
	if !known {
		v.err = pg.UnknownLegalEntity()
		return
	}
	v.partitionHead = h
	v.headSequence = h.current.Sequence
	if c := r.Idempotency; c != nil {
		row := g.idempotencyOf(textKey{r.Partition, c.Key})
		if row.expiresAt.After(now) {
			if v.err = c.Check(row.outcome.StoredHash); v.err == nil {
				v.replay = &row.outcome
			}
			return
		}
	}
	if g.checkPreconditions(r, v); v.err != nil {
		return
	}
	if g.stage(r, v); v.err != nil {
		return
	}
	g.accept(w, h, now, v)
}

func (g *group) idempotencyOf(k textKey) idempotencyRow {
	if row, ok := g.overlay.idempotency[k]; ok {
		return row
	}
	return g.facts.idempotency.getOrWant(k)
}

func (g *group) streamOf(k streamKey) streamRow {
	if row, ok := g.overlay.streams[k]; ok {
		return row
	}
	return g.facts.streams.getOrWant(k)
}

// checkPreconditions checks the request's intent revision, subject keys, access, streams,
// entities and conditions against facts and overlay, in the order that ports.EventAppender names;
// stage checks the business keys and the streams' states.
func (g *group) checkPreconditions(r *ports.AppendRequest, v *verdict) {
	if w := r.Intent; w != nil {
		k := idKey{r.Partition, w.Intent.ID}
		revision, ok := g.overlay.intents[k]
		if !ok {
			revision = g.facts.intents.getOrWant(k)
		}
		if revision != w.ExpectedRevision {
			v.err = concurrency.IntentChanged(w.Intent.ID)
			return
		}
	}
	if v.err = g.checkSubjectKeys(r); v.err != nil {
		return
	}
	if v.err = g.checkAccess(r); v.err != nil {
		return
	}
	for _, expectation := range r.Streams {
		row := g.streamOf(streamKey{r.Partition, expectation.Stream})
		from := row.content
		if r.ChangesStream(expectation.Stream) {
			from = row.version
		}
		if !expectation.Expected.AllowsIn(row.state, from, row.version) {
			v.err = concurrency.UnmetExpectation(expectation, row.state, row.version, nil)
			v.holder = row.last
			return
		}
	}
	for _, expectation := range r.Entities {
		k := textKey{r.Partition, event.EntityKey(expectation.EntityType, expectation.EntityID)}
		actual, ok := g.overlay.entities[k]
		if !ok {
			actual = g.facts.entities.getOrWant(k)
		}
		if actual != expectation.Sequence {
			v.err = concurrency.WrongEntityVersion(expectation.EntityType, expectation.EntityID, expectation.Sequence, actual)
			return
		}
	}
	for i := range r.Conditions {
		if g.checkCondition(r.Partition, &r.Conditions[i], v); v.err != nil {
			return
		}
	}
}

func (g *group) checkCondition(p event.PartitionID, c *concurrency.AppendCondition, v *verdict) {
	if c.After > v.headSequence {
		v.err = concurrency.ConditionBeyondHead(c.After, v.headSequence)
		return
	}
	var first event.Sequence
	tooOld := false
	for i := range c.Items {
		n, itemTooOld := g.firstMatch(p, c.After, &c.Items[i])
		tooOld = tooOld || itemTooOld
		if n != 0 && (first == 0 || n < first) {
			first = n
		}
	}
	switch {
	case first != 0:
		v.err = c.Failed(fault.Holder{})
		v.holder = first
	case tooOld:
		v.err = concurrency.ConditionTooOld(c.After)
	}
}

// firstMatch finds the first event after a sequence that matches the item. It looks in the
// database first, because sequences there are lower than the group's. An item without types and
// keys matches every event.
func (g *group) firstMatch(p event.PartitionID, after event.Sequence, item *concurrency.Item) (found event.Sequence, tooOld bool) {
	keys := item.Keys()
	switch {
	case len(keys) > 0:
		found, tooOld = g.firstByKeys(p, after, keys, item.Types)
	case len(item.Types) > 0:
		for _, t := range item.Types {
			if n := g.facts.typeConditions.getOrWant(typeCondition{p, after, t}); n != 0 && (found == 0 || n < found) {
				found = n
			}
		}
	default:
		if after < g.heads[p].stored.Sequence {
			found = after + 1
		}
	}
	if found != 0 {
		return found, false
	}
	for i := range g.events {
		e := &g.events[i]
		if e.Partition == p && e.Sequence > after && (len(item.Types) == 0 || slices.Contains(item.Types, e.Type)) && containsAll(e.Keys, keys) {
			return e.Sequence, false
		}
	}
	return 0, tooOld
}

// firstByKeys asks the database once for each key to scan that key's events for the other
// keys. Each scan ends after MaxConditionScan entries. A scan that reached a match or the end
// of its key answers for the whole item; if none did, the item is too old.
func (g *group) firstByKeys(p event.PartitionID, after event.Sequence, keys, types []string) (found event.Sequence, tooOld bool) {
	typeList := string(pg.AppendArrayLiteral(nil, types))
	tooOld = true
	others := make([]string, 0, len(keys))
	for i, key := range keys {
		others = append(append(others[:0], keys[:i]...), keys[i+1:]...)
		row := g.facts.keyConditions.getOrWant(keyCondition{p, after, key, string(pg.AppendArrayLiteral(nil, others)), typeList})
		if row.scanned <= concurrency.MaxConditionScan {
			found, tooOld = row.sequence, false
		}
	}
	return found, tooOld
}

func containsAll(have, wanted []string) bool {
	for _, k := range wanted {
		if !slices.Contains(have, k) {
			return false
		}
	}
	return true
}

// stage copies the request's events to the end of the group's, gives them their series numbers
// and checks that their business keys are free, also among the request's own, and that their
// streams accept them. decideAll removes the events again if the request is refused.
func (g *group) stage(r *ports.AppendRequest, v *verdict) {
	g.numbers, g.businessClaims = g.numbers[:0], g.businessClaims[:0]
	for i := range r.Events {
		g.events = append(g.events, r.Events[i])
		e := &g.events[len(g.events)-1]
		e.Partition = r.Partition
		for _, s := range e.Series {
			e.ReplaceToken(s.Token, s.Format(g.nextNumber(textKey{r.Partition, s.Series})))
		}
		if len(e.Series) > 0 {
			e.PayloadHashDone = false
		}
		sequence := v.headSequence + event.Sequence(i) + 1
		for _, b := range e.BusinessKeys {
			k := businessKey{r.Partition, b.EventType, b.Key}
			row, held := g.overlay.business[k]
			if !held {
				row = g.facts.business.getOrWant(k)
			}
			for j := range g.businessClaims {
				if g.businessClaims[j].key == k {
					row = g.businessClaims[j].row
				}
			}
			if row.sequence != 0 {
				v.err = concurrency.DuplicateBusinessKey(b.EventType, fault.Holder{
					EventID: row.id.String(), DocumentID: row.document, Sequence: decimal(row.sequence),
				})
				return
			}
			g.businessClaims = append(g.businessClaims, businessClaim{k, businessRow{sequence, e.ID, b.Document}})
		}
	}
	g.checkStates(r, v)
}

// businessClaim is a business key that the request being decided claims. accept puts it into the
// overlay.
type businessClaim struct {
	key businessKey
	row businessRow
}

type seriesNumber struct {
	key  textKey
	next uint64
}

// nextNumber gives the request the next number of a series. accept stores the series'
// new state, so a refused request uses up no number.
func (g *group) nextNumber(k textKey) uint64 {
	for i := range g.numbers {
		if g.numbers[i].key == k {
			g.numbers[i].next++
			return g.numbers[i].next - 1
		}
	}
	next, ok := g.overlay.series[k]
	if !ok {
		next = max(g.facts.series.getOrWant(k), 1)
	}
	g.numbers = append(g.numbers, seriesNumber{k, next + 1})
	return next
}

// accept gives the staged events sequence, stream version and checksum, and puts the
// request's rows into the overlay. It refuses nothing.
func (g *group) accept(w *queuedRequest, h *head, now time.Time, v *verdict) {
	r := w.request
	recordedAt := now
	if h.current.RecordedAt.After(now) {
		recordedAt = h.current.RecordedAt
	}
	staged := g.events[v.first:]
	for i := range staged {
		e := &staged[i]
		h.current.Sequence++
		e.Sequence, e.RecordedAt, e.OccurredAt = h.current.Sequence, recordedAt, event.Micros(e.OccurredAt)
		k := streamKey{r.Partition, e.Stream}
		stream := g.streamOf(k)
		stream.add(e)
		g.overlay.streams[k] = stream
		e.StreamVersion = stream.version
		if !e.PayloadHashDone {
			e.PayloadHash = event.HashPayload(e.Salt, e.Payload)
		}
		h.current.Checksum, g.scratch = e.ChainChecksum(h.current.Checksum, g.scratch)
		e.Checksum = h.current.Checksum
		if g.tracksEntities {
			for _, key := range e.Keys {
				g.overlay.entities[textKey{r.Partition, key}] = e.Sequence
			}
		}
	}
	v.count = len(staged)
	if v.count > 0 {
		h.current.RecordedAt = recordedAt
	}
	v.headSequence = h.current.Sequence
	v.outcome.EventCount = v.count
	if v.count > 0 {
		v.outcome.FirstSequence = staged[0].Sequence
	}
	v.writes = v.count > 0 || r.Intent != nil || r.Idempotency != nil
	for _, c := range g.businessClaims {
		g.overlay.business[c.key] = c.row
	}
	for _, n := range g.numbers {
		g.overlay.series[n.key] = n.next
	}
	if r.Intent != nil {
		v.outcome.IntentID = r.Intent.Intent.ID
		g.overlay.intents[idKey{r.Partition, r.Intent.Intent.ID}] = r.Intent.ExpectedRevision + 1
	}
	if c := r.Idempotency; c != nil {
		v.outcome.StoredHash = c.StoredHash()
		g.overlay.idempotency[textKey{r.Partition, c.Key}] = idempotencyRow{v.outcome, c.ExpiresAt}
	}
}

// wantAll wants all rows that the requests depend on, as far as their keys are known.
func (g *group) wantAll(ws []*queuedRequest) {
	g.tracksEntities = false
	for _, w := range ws {
		r := w.request
		p := r.Partition
		if r.Idempotency != nil {
			g.facts.idempotency.want(textKey{p, r.Idempotency.Key})
		}
		if r.Intent != nil {
			g.facts.intents.want(idKey{p, r.Intent.Intent.ID})
		}
		g.wantSubjectKeys(r)
		for _, s := range r.Streams {
			g.facts.streams.want(streamKey{p, s.Stream})
		}
		for _, e := range r.Entities {
			g.tracksEntities = true
			g.facts.entities.want(textKey{p, event.EntityKey(e.EntityType, e.EntityID)})
		}
		for i := range r.Conditions {
			g.wantCondition(p, &r.Conditions[i])
		}
		for i := range r.Events {
			e := &r.Events[i]
			if !hasToken(e, e.Stream.ID) {
				g.facts.streams.want(streamKey{p, e.Stream})
			}
			for _, b := range e.BusinessKeys {
				if !hasToken(e, b.Key) {
					g.facts.business.want(businessKey{p, b.EventType, b.Key})
				}
			}
			for _, s := range e.Series {
				g.facts.series.want(textKey{p, s.Series})
			}
		}
	}
}

func (g *group) wantCondition(p event.PartitionID, c *concurrency.AppendCondition) {
	for i := range c.Items {
		item := &c.Items[i]
		if keys := item.Keys(); len(keys) > 0 {
			g.firstByKeys(p, c.After, keys, item.Types) // wants the rows, which are not there yet
			continue
		}
		for _, t := range item.Types {
			g.facts.typeConditions.want(typeCondition{p, c.After, t})
		}
	}
}

// hasToken reports whether the text contains a token that a series number will replace.
func hasToken(e *event.Prepared, text string) bool {
	for _, s := range e.Series {
		if strings.Contains(text, s.Token) {
			return true
		}
	}
	return false
}

func decimal(n event.Sequence) string { return strconv.FormatUint(uint64(n), 10) }
