package vault

import (
	"container/list"
	"time"

	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// entry is the state of one key as the key store last returned it, and the versions of the
// key that the vault has unwrapped since. The Vault's lock guards it; known and expiresAt
// never change.
type entry struct {
	known     ports.SubjectKey
	expiresAt time.Time
	cached    bool // false: only the requests that waited for it use it
	deks      map[uint32]*dek
	unwraps   map[uint32]*pendingKey
	element   *list.Element
}

// dek is an unwrapped version of a key. If it is not cached, the last user zeroes it.
type dek struct {
	key    shredding.Key
	cached bool
	users  int
}

func newEntry(k ports.SubjectKey, expiresAt time.Time) *entry {
	return &entry{known: k, expiresAt: expiresAt, deks: map[uint32]*dek{}, unwraps: map[uint32]*pendingKey{}}
}

// matches reports whether a newer read returned the same state.
func (e *entry) matches(k ports.SubjectKey) bool {
	return e.known.Reference == k.Reference && e.known.State == k.State && e.known.Active == k.Active && len(e.known.Versions) == len(k.Versions)
}

// weight counts an entry's keys; an entry without keys counts as one.
func (e *entry) weight() int { return max(1, len(e.deks)) }

// release ends the caller's use of a key.
func (d *dek) release() {
	if d.users--; d.users <= 0 && !d.cached {
		d.key.DEK.Zero()
	}
}

// cache holds the entries by key and by reference, in the order in which they expire.
// The Vault's lock guards it.
type cache struct {
	limit  int
	weight int
	byID   map[ports.SubjectKeyID]*entry
	byRef  map[string]*entry
	order  *list.List
}

func (c *cache) init(limit int) {
	*c = cache{limit: limit, byID: map[ports.SubjectKeyID]*entry{}, byRef: map[string]*entry{}, order: list.New()}
}

// get returns an entry that has not expired, nil if there is none.
func (c *cache) get(id ports.SubjectKeyID, now time.Time) *entry {
	if e := c.byID[id]; e != nil && now.Before(e.expiresAt) {
		return e
	}
	return nil
}

// put adds an entry, replacing an older one, and returns how many keys it evicted. It does
// not add an absent key.
func (c *cache) put(e *entry) (evicted int) {
	if e.known.State == shredding.KeyAbsent {
		return 0
	}
	if old := c.byID[e.known.SubjectKeyID]; old != nil {
		if old.expiresAt.After(e.expiresAt) {
			return 0 // the old entry is of a later read
		}
		evicted += c.drop(old, false)
	}
	e.cached = true
	c.byID[e.known.SubjectKeyID] = e
	if e.known.Reference != "" {
		c.byRef[e.known.Reference] = e
	}
	before := c.order.Back()
	for before != nil && before.Value.(*entry).expiresAt.After(e.expiresAt) {
		before = before.Prev()
	}
	if before == nil {
		e.element = c.order.PushFront(e)
	} else {
		e.element = c.order.InsertAfter(e, before)
	}
	c.weight += e.weight()
	return evicted + c.shrink(e)
}

// add adds an unwrapped key to its entry and returns how many keys it evicted. If the entry
// was evicted, only the current users get the key.
func (c *cache) add(e *entry, d *dek) (evicted int) {
	if _, taken := e.deks[d.key.Version]; !e.cached || taken {
		return 0
	}
	before := e.weight()
	d.cached = true
	e.deks[d.key.Version] = d
	c.weight += e.weight() - before
	return c.shrink(e)
}

// shrink drops the entries that expire first until the limit holds, but not the given one.
func (c *cache) shrink(except *entry) (evicted int) {
	for at := c.order.Front(); at != nil && c.weight > c.limit; {
		e := at.Value.(*entry)
		at = at.Next()
		if e != except {
			evicted += c.drop(e, false)
		}
	}
	return evicted
}

// drop removes an entry and returns how many keys it evicted. With zeroNow it zeroes the
// keys at once, and requests that use them fail with pii.key_evicted; otherwise the last
// user zeroes them.
func (c *cache) drop(e *entry, zeroNow bool) (evicted int) {
	if !e.cached {
		return 0
	}
	e.cached = false
	c.weight -= e.weight()
	c.order.Remove(e.element)
	delete(c.byID, e.known.SubjectKeyID)
	if c.byRef[e.known.Reference] == e {
		delete(c.byRef, e.known.Reference)
	}
	for _, d := range e.deks {
		d.cached = false
		if zeroNow || d.users <= 0 {
			d.key.DEK.Zero()
		}
	}
	return max(1, len(e.deks))
}

// expire drops the expired entries.
func (c *cache) expire(now time.Time) (evicted int) {
	return c.dropWhile(func(e *entry) bool { return !now.Before(e.expiresAt) })
}

// clear drops all entries.
func (c *cache) clear() (evicted int) {
	return c.dropWhile(func(*entry) bool { return true })
}

// dropWhile drops the entries that expire first as long as the condition holds.
func (c *cache) dropWhile(condition func(*entry) bool) (evicted int) {
	for at := c.order.Front(); at != nil && condition(at.Value.(*entry)); at = c.order.Front() {
		evicted += c.drop(at.Value.(*entry), true)
	}
	return evicted
}
