package verify

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/ports"
)

// Appends decide by rows of keys: the key index answers which event last changed an entity,
// a business key refuses a duplicate, and an idempotency key answers a repeated request. The
// first two follow from the events, and the last event of a request holds a digest of the third.
// So verification derives them again: the rows up to the head must be exactly those.
//
// There are several rows to an event, and looking each up would take longer than everything
// else. So the rows are read once, in the order in which the database has them, and added up
// by blocks of events: one sum of hashes of the stored rows, and one of those that the events
// demand. The seed of the hashes is drawn for each run, so that no one can choose rows whose
// sums agree. Only blocks whose sums differ are read again, to name the events.

// blockEvents is the number of events of a block.
const blockEvents = 1024

// tally adds up rows by the block of their event.
type tally struct {
	seed    maphash.Seed
	head    event.Sequence
	blocks  []uint64
	outside bool           // it was given a row whose sequence is not between 1 and the head
	last    event.Sequence // the highest such sequence, less 1: 0 is no event's either
	buffer  []byte
}

func newTally(seed maphash.Seed, head event.Sequence) tally {
	return tally{seed: seed, head: head, blocks: make([]uint64, (uint64(head)+blockEvents-1)/blockEvents)}
}

// add adds the row of an event.
func (t *tally) add(n event.Sequence, texts ...string) {
	if n-1 >= t.head {
		t.outside, t.last = true, max(t.last, n-1)
		return
	}
	t.buffer = appendRow(t.buffer[:0], n, texts...)
	t.blocks[(n-1)/blockEvents] += maphash.Bytes(t.seed, t.buffer)
}

// appendRow encodes a row. No text that a row can hold contains a NUL.
func appendRow(dst []byte, n event.Sequence, texts ...string) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	for _, s := range texts {
		dst = append(append(dst, s...), 0)
	}
	return dst
}

// keyTypes are the registered event types, by which keys are derived.
type keyTypes struct {
	names map[int32]string // by the number in the key index
	rules map[registryVersion][]eventtype.BusinessKeyRule
	known map[string]bool
	read  map[event.PartitionID]event.Sequence // how far the administrative logs were read
}

// keyTypesOf returns the types of a tenant. They are read once, and again when the administrative
// log has got events about types since: there is one log to many legal entities.
func (r *run) keyTypesOf(ctx context.Context, store Store, tenantID string) (keyTypes, error) {
	logs, err := store.AdministrativeLogs(ctx, tenantID)
	if err != nil {
		return keyTypes{}, err
	}
	if known := r.types[tenantID]; len(known.read) > 0 {
		changed := false
		for _, log := range logs {
			if err := known.eachChange(ctx, store, log.Partition, func(*event.Recorded) { changed = true }); err != nil {
				return keyTypes{}, err
			}
		}
		if !changed {
			return known, nil
		}
	}
	types, err := readKeyTypes(ctx, store, tenantID, logs)
	if err == nil {
		r.types[tenantID] = types
	}
	return types, err
}

// readKeyTypes reads the types of a tenant: the built-in ones, those of the registry that an
// earlier release left, and those that the administrative log registered.
func readKeyTypes(ctx context.Context, store Store, tenantID string, logs []ports.LegalEntity) (keyTypes, error) {
	t := keyTypes{names: map[int32]string{}, rules: map[registryVersion][]eventtype.BusinessKeyRule{}, known: map[string]bool{}, read: map[event.PartitionID]event.Sequence{}}
	for _, of := range []string{"", tenantID} {
		record, err := store.RegistryRecord(ctx, of)
		if err != nil {
			return t, err
		}
		for i := range record.Versions {
			t.add(record.Versions[i].Document)
		}
	}
	for _, log := range logs {
		err := t.eachChange(ctx, store, log.Partition, func(e *event.Recorded) {
			var registered changedVersion
			if e.Payload != nil && decodeData(e, &registered) {
				t.add([]byte(registered.Document))
			}
		})
		if err != nil {
			return t, err
		}
	}
	numbers, err := store.EventTypeNumbers(ctx, slices.Sorted(maps.Keys(t.known)))
	for name, n := range numbers {
		t.names[n.Number] = name
	}
	return t, err
}

// eachChange calls visit with each event about types that an administrative log has got since it
// was read.
func (t *keyTypes) eachChange(ctx context.Context, store Store, p event.PartitionID, visit func(*event.Recorded)) error {
	for page := range readAhead(ctx, store, p, t.read[p]) {
		for i := range page.events {
			e := &page.events[i]
			t.read[p] = e.Sequence
			if strings.HasPrefix(e.Type, eventTypePrefix) {
				visit(e)
			}
		}
		if page.err != nil {
			return page.err
		}
	}
	return ctx.Err()
}

// documentNames are the members of a registration's document that keys are derived by.
var documentNames = []string{"type", "schema_version", "business_keys"}

// add adds a version. A document that cannot be read has a finding of its own. The rest of the
// document is not decoded: its schema and examples are nearly all of it, and a run over a short log
// would spend most of its time on them.
func (t *keyTypes) add(document []byte) {
	var values [3][]byte
	var version uint32
	var rules []eventtype.BusinessKeyRule
	err := jsondoc.Members(document, documentNames, values[:])
	name := textOf(values[0])
	if err != nil || name == "" || json.Unmarshal(values[1], &version) != nil || values[2] != nil && json.Unmarshal(values[2], &rules) != nil {
		return
	}
	t.known[name] = true
	t.rules[registryVersion{name, version}] = rules
}

// name is the text that stands for an event type in the rows of the key index: its name, or ""
// for a type that is not registered.
func (t *keyTypes) name(eventType string) string {
	if t.known[eventType] {
		return eventType
	}
	return ""
}

// keyRows compares the rows of keys of one partition with its events.
type keyRows struct {
	types  keyTypes
	head   event.Sequence
	index  tally // of the events
	claims tally
	// Requests whose key expires after judged. Rows that expire earlier may be deleted while a
	// run reads them.
	requests tally
	judged   time.Time
	numbers  numbers
	stored   struct{ index, claims, requests tally }
	damaged  map[event.Sequence]bool // events that have findings of their own: their keys are not judged
	refs     []string                // of the event that is being read
}

// maxDamaged bounds the damaged events that are remembered.
const maxDamaged = 10_000

func newKeyRows(types keyTypes, head event.Sequence) *keyRows {
	seed := maphash.MakeSeed()
	k := &keyRows{
		types: types, head: head, judged: time.Now().Add(expiryMargin), numbers: newNumbers(head), damaged: map[event.Sequence]bool{},
		index: newTally(seed, head), claims: newTally(seed, head), requests: newTally(seed, head),
	}
	k.stored.index, k.stored.claims, k.stored.requests = newTally(seed, head), newTally(seed, head), newTally(seed, head)
	return k
}

// expiryMargin is longer than it takes to read the rows of idempotency keys, and than clocks of
// nodes differ.
const expiryMargin = 10 * time.Minute

// note adds the rows that an event demands. Those of events after the head are not compared:
// they may not have been read.
func (k *keyRows) note(c *chain, e *event.Recorded, damaged bool) {
	m := readMembers(e.Payload)
	if m.numbers != nil && !damaged {
		k.numbers.note(c, e, m.numbers)
	}
	k.eachKey(e, m, func(key string) { k.index.add(e.Sequence, key, k.types.name(e.Type)) })
	k.eachClaim(e, m, func(b event.BusinessKey) {
		k.claims.add(e.Sequence, b.EventType, b.Key, e.ID.String(), b.Document)
	})
	if digest := k.requestOf(m); digest != "" {
		k.requests.add(e.Sequence, digest)
	}
}

// members are the members of a payload that rows follow from.
type members struct{ data, refs, numbers, request json.RawMessage }

var memberNames = []string{"data", "entity_refs", "numbers", "request"}

// readMembers reads them in one pass. What cannot be read gives no rows, which the stored ones
// contradict.
func readMembers(payload []byte) members {
	var values [4][]byte
	_ = jsondoc.Members(payload, memberNames, values[:])
	return members{values[0], values[1], values[2], values[3]}
}

// requestOf is the digest of the row of an idempotency key that an event holds, "" if there is
// none that is judged.
func (k *keyRows) requestOf(m members) string {
	var b concurrency.RequestBinding
	if m.request == nil || json.Unmarshal(m.request, &b) != nil || !b.ExpiresAt.After(k.judged) {
		return ""
	}
	return b.Digest
}

// digestOf is the digest of a row of an idempotency key, and the last event of its request; ""
// if it is not judged.
func (k *keyRows) digestOf(r *ports.RequestKey) (digest string, last event.Sequence) {
	if !r.Bound || !r.ExpiresAt.After(k.judged) {
		return "", 0
	}
	hash := concurrency.RequestDigest(r.Key, r.StoredHash, r.IntentID, r.EventCount, r.ExpiresAt)
	return hex.EncodeToString(hash[:]), r.First + event.Sequence(r.EventCount) - 1
}

func (k *keyRows) damage(n event.Sequence) {
	if len(k.damaged) < maxDamaged {
		k.damaged[n] = true
	}
}

// eachKey calls visit with each key of an event in the key index once.
func (k *keyRows) eachKey(e *event.Recorded, m members, visit func(key string)) {
	k.refs = k.refs[:0]
	add := func(key string) {
		if !slices.Contains(k.refs, key) {
			k.refs = append(k.refs, key)
			visit(key)
		}
	}
	names, values := [...]string{"entity_type", "entity_id"}, [2][]byte{}
	_ = jsondoc.EachElement(m.refs, 0, func(_, start, end int) error {
		if err := jsondoc.Members(m.refs[start:end], names[:], values[:]); err != nil {
			return err
		}
		add(event.EntityKey(textOf(values[0]), textOf(values[1])))
		return nil
	})
	for _, tag := range e.Tags {
		add(event.TagKey(tag))
	}
}

// textOf is the text of a JSON string.
func textOf(raw []byte) string {
	if len(raw) >= 2 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// eachClaim calls visit with each business key that an event claims.
func (k *keyRows) eachClaim(e *event.Recorded, m members, visit func(event.BusinessKey)) {
	rules := k.types.rules[registryVersion{e.Type, e.SchemaVersion}]
	if len(rules) == 0 {
		return
	}
	fields, err := eventtype.KeyFields(rules, m.data)
	if err != nil {
		return
	}
	for _, rule := range rules {
		if values, document, ok := rule.Values(fields); ok {
			visit(rule.Claim(e.Type, values, document))
		}
	}
}

// readStored adds up the stored rows. It runs in parallel with the walk.
func (k *keyRows) readStored(ctx context.Context, store ports.ChainAudit, p event.PartitionID) error {
	for r, err := range store.EventKeys(ctx, p, 0, everything) {
		if err != nil {
			return err
		}
		k.stored.index.add(r.Sequence, r.Key, k.types.names[r.TypeNumber])
	}
	for r, err := range store.BusinessKeys(ctx, p, 0, everything) {
		if err != nil {
			return err
		}
		// No event can claim a key of a type that is not registered.
		if k.types.known[r.EventType] {
			k.stored.claims.add(r.Sequence, r.EventType, r.Key, r.EventID.String(), r.Document)
		}
	}
	return nil
}

// everything is the upper bound of a read of all rows, also of those with a negative sequence,
// which is a high one here.
const everything = ^event.Sequence(0)

// readRequests adds up the rows of idempotency keys, before the walk: later some may have expired
// and be deleted.
func (k *keyRows) readRequests(ctx context.Context, c *chain, store ports.ChainAudit) error {
	for r, err := range store.RequestKeys(ctx, c.entity.Partition) {
		if err != nil {
			return err
		}
		if !r.Bound {
			c.report.UnboundRequests++
		}
		if digest, last := k.digestOf(&r); digest != "" {
			k.stored.requests.add(last, digest)
		}
	}
	return nil
}

// finish reports what differs.
func (k *keyRows) finish(ctx context.Context, c *chain, store Store) error {
	k.numbers.finish(c, len(k.damaged) > 0)
	if k.stored.index.outside || k.stored.claims.outside || k.stored.requests.outside {
		head, err := store.Head(ctx, c.entity.Partition)
		if err != nil {
			return err
		}
		for kind, t := range map[FindingKind]*tally{KeyMismatch: &k.stored.index, BusinessKeyMismatch: &k.stored.claims, RequestMismatch: &k.stored.requests} {
			if t.outside && t.last >= head.Sequence {
				c.add(kind, 0, "a row names an event that does not exist")
			}
		}
	}
	for i := range k.index.blocks {
		if k.index.blocks[i] == k.stored.index.blocks[i] && k.claims.blocks[i] == k.stored.claims.blocks[i] && k.requests.blocks[i] == k.stored.requests.blocks[i] {
			continue
		}
		if len(c.report.Findings) == MaxFindings {
			c.report.Suppressed++
			continue
		}
		if err := k.locate(ctx, c, store, event.Sequence(i)*blockEvents); err != nil {
			return err
		}
	}
	return nil
}

// locate names the events after a sequence whose keys differ, within one block.
func (k *keyRows) locate(ctx context.Context, c *chain, store Store, after event.Sequence) error {
	type row struct {
		kind FindingKind
		of   event.Sequence
		text string
	}
	until := min(after+blockEvents, k.head)
	demanded := map[row]int{} // less how often the row is stored
	note := func(count int, kind FindingKind, n event.Sequence, texts ...string) {
		demanded[row{kind, n, string(appendRow(nil, n, texts...))}] += count
	}
	ids := map[event.Sequence]event.ID{}
	k.judged = time.Now().Add(expiryMargin) // what has expired since is deleted
	p := pager{store: store, partition: c.entity.Partition, after: after, limit: int(until - after)}
	page, _ := p.next(ctx)
	if page.err != nil {
		return page.err
	}
	for i := range page.events {
		e := &page.events[i]
		if e.Sequence > until || k.damaged[e.Sequence] {
			continue
		}
		ids[e.Sequence] = e.ID
		m := readMembers(e.Payload)
		k.eachKey(e, m, func(key string) { note(1, KeyMismatch, e.Sequence, key, k.types.name(e.Type)) })
		k.eachClaim(e, m, func(b event.BusinessKey) {
			note(1, BusinessKeyMismatch, e.Sequence, b.EventType, b.Key, e.ID.String(), b.Document)
		})
		if digest := k.requestOf(m); digest != "" {
			note(1, RequestMismatch, e.Sequence, digest)
		}
	}
	for r, err := range store.EventKeys(ctx, c.entity.Partition, after+1, until) {
		if err != nil {
			return err
		}
		note(-1, KeyMismatch, r.Sequence, r.Key, k.types.names[r.TypeNumber])
	}
	for r, err := range store.BusinessKeys(ctx, c.entity.Partition, after+1, until) {
		if err != nil {
			return err
		}
		if k.types.known[r.EventType] {
			note(-1, BusinessKeyMismatch, r.Sequence, r.EventType, r.Key, r.EventID.String(), r.Document)
		}
	}
	for r, err := range store.RequestKeys(ctx, c.entity.Partition) {
		if err != nil {
			return err
		}
		if digest, last := k.digestOf(&r); digest != "" && last > after && last <= until {
			note(-1, RequestMismatch, last, digest)
		}
	}
	type place struct {
		of   event.Sequence
		kind FindingKind
	}
	missing, extra := map[place]int{}, map[place]int{}
	for r, n := range demanded {
		// A missing or damaged event has a finding of its own.
		if _, judged := ids[r.of]; judged && n != 0 {
			missing[place{r.of, r.kind}] += max(n, 0)
			extra[place{r.of, r.kind}] += max(-n, 0)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(missing), func(a, b place) int { return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.kind, b.kind)) }) {
		c.report.add(Finding{
			Kind: at.kind, Sequence: at.of, EventID: ids[at.of].String(),
			Detail: fmt.Sprintf("of the rows that the event demands %d are missing, and %d are there that it does not demand", missing[at], extra[at]),
		})
	}
	return nil
}
