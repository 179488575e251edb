package vault

import (
	"container/list"
	"time"

	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// entry is what one read of the key store said about a key, and the versions that
// were unwrapped since. The Vault's lock guards it; known and dies never change.
type entry struct {
	known   ports.SubjectKey
	dies    time.Time
	kept    bool // in the cache; otherwise it serves those who waited for it
	deks    map[uint32]*dek
	unwraps map[uint32]*making
	place   *list.Element
}

// dek is an unwrapped version. One that is not kept is zeroed by its last user.
type dek struct {
	key   shredding.Key
	kept  bool
	users int
}

func newEntry(k ports.SubjectKey, dies time.Time) *entry {
	return &entry{known: k, dies: dies, deks: map[uint32]*dek{}, unwraps: map[uint32]*making{}}
}

// says reports whether a read says nothing else than the entry.
func (e *entry) says(k ports.SubjectKey) bool {
	return e.known.Reference == k.Reference && e.known.State == k.State && e.known.Active == k.Active && len(e.known.Versions) == len(k.Versions)
}

// weight counts an entry's keys; one without keys takes a place too.
func (e *entry) weight() int { return max(1, len(e.deks)) }

// release gives a key back.
func (d *dek) release() {
	if d.users--; d.users <= 0 && !d.kept {
		d.key.DEK.Zero()
	}
}

// cache holds the entries by key and by reference, in the order in which they die.
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

// get finds what is known and still alive.
func (c *cache) get(id ports.SubjectKeyID, now time.Time) *entry {
	if e := c.byID[id]; e != nil && now.Before(e.dies) {
		return e
	}
	return nil
}

// put keeps an entry, in the place of an older one, and tells how many keys had to
// go. An absent key is not kept.
func (c *cache) put(e *entry) (evicted int) {
	if e.known.State == shredding.KeyAbsent {
		return 0
	}
	if old := c.byID[e.known.SubjectKeyID]; old != nil {
		if old.dies.After(e.dies) {
			return 0 // a later read has been faster
		}
		evicted += c.drop(old, false)
	}
	e.kept = true
	c.byID[e.known.SubjectKeyID] = e
	if e.known.Reference != "" {
		c.byRef[e.known.Reference] = e
	}
	before := c.order.Back()
	for before != nil && before.Value.(*entry).dies.After(e.dies) {
		before = before.Prev()
	}
	if before == nil {
		e.place = c.order.PushFront(e)
	} else {
		e.place = c.order.InsertAfter(e, before)
	}
	c.weight += e.weight()
	return evicted + c.shrink(e)
}

// add hands an unwrapped key to its entry. If that was evicted meanwhile, the key
// serves its users only.
func (c *cache) add(e *entry, d *dek) (evicted int) {
	if _, taken := e.deks[d.key.Version]; !e.kept || taken {
		return 0
	}
	before := e.weight()
	d.kept = true
	e.deks[d.key.Version] = d
	c.weight += e.weight() - before
	return c.shrink(e)
}

// shrink drops the earliest entries until the bound holds, but not the given one.
func (c *cache) shrink(but *entry) (evicted int) {
	for at := c.order.Front(); at != nil && c.weight > c.limit; {
		e := at.Value.(*entry)
		at = at.Next()
		if e != but {
			evicted += c.drop(e, false)
		}
	}
	return evicted
}

// drop takes an entry out and tells how many keys went. At once zeroes them whoever
// uses them, who then sees pii.key_evicted; otherwise the last user does.
func (c *cache) drop(e *entry, atOnce bool) (evicted int) {
	if !e.kept {
		return 0
	}
	e.kept = false
	c.weight -= e.weight()
	c.order.Remove(e.place)
	delete(c.byID, e.known.SubjectKeyID)
	if c.byRef[e.known.Reference] == e {
		delete(c.byRef, e.known.Reference)
	}
	for _, d := range e.deks {
		d.kept = false
		if atOnce || d.users <= 0 {
			d.key.DEK.Zero()
		}
	}
	return max(1, len(e.deks))
}

// expire drops what has died.
func (c *cache) expire(now time.Time) (evicted int) {
	for at := c.order.Front(); at != nil; {
		e := at.Value.(*entry)
		if at = at.Next(); now.Before(e.dies) {
			break
		}
		evicted += c.drop(e, true)
	}
	return evicted
}

// clear drops everything.
func (c *cache) clear() (evicted int) {
	for at := c.order.Front(); at != nil; {
		e := at.Value.(*entry)
		at = at.Next()
		evicted += c.drop(e, true)
	}
	return evicted
}
