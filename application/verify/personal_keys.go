package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const (
	keyPage    = 500 // keys that are compared at once
	keyOpeners = 8   // keys that are opened at once
)

// checkPersonalKeys compares the keys that events and intents are sealed with with the key store,
// page by page: keys may take hours to open, and no statement runs as long. A key is stored before an append seals with it, so a missing one was removed. One
// that is destroyed is compared with the receipts (KeyStoreAudit.Contradictions).
func (r *run) checkPersonalKeys(ctx context.Context, store Store, c *chain) error {
	if r.keyStore == nil {
		return nil
	}
	for after := (ports.PersonalKey{}); ; {
		page, err := store.PersonalKeys(ctx, c.entity.Partition, after, keyPage)
		if err != nil {
			return err
		}
		if err := r.comparePersonalKeys(ctx, store, c, page); err != nil || len(page) < keyPage {
			return err
		}
		after = page[len(page)-1]
	}
}

func (r *run) comparePersonalKeys(ctx context.Context, store Store, c *chain, page []ports.PersonalKey) error {
	ids := make([]ports.SubjectKeyID, len(page))
	for i, k := range page {
		ids[i] = ports.SubjectKeyID{Partition: c.entity.Partition, Subject: k.Subject, Class: k.KeyClass}
	}
	stored, err := r.keyStore.SubjectKeys(ctx, ids)
	if err != nil {
		return err
	}
	var opening []int
	for i, k := range stored {
		switch {
		case k.State == shredding.KeyAbsent:
			c.add(KeyStoreMismatch, page[i].First, "a key that sealed personal values is missing, and no erasure destroyed it; `backbone keys restore` brings it back from an export of keys")
		case slices.ContainsFunc(k.Versions, func(v ports.WrappedKey) bool { return v.KEK == "" }):
			c.add(KeyStoreMismatch, page[i].First, fmt.Sprintf("key %s is wrapped with an epoch of keys that does not exist", k.Reference))
		case r.dataKeys != nil:
			opening = append(opening, i)
		}
	}
	return r.openPersonalKeys(ctx, store, c, page, stored, opening)
}

// openPersonalKeys opens those of the stored keys of a page that have the indexes.
func (r *run) openPersonalKeys(ctx context.Context, store Store, c *chain, page []ports.PersonalKey, stored []ports.SubjectKey, indexes []int) error {
	isFenced := func(i int) bool { return stored[i].State == shredding.KeyFenced }
	if r.destroyed == nil && slices.ContainsFunc(indexes, isFenced) {
		if err := r.readDestroyed(ctx); err != nil {
			return err
		}
	}
	problems, failures := make([]string, len(page)), make([]error, len(page))
	next := make(chan int)
	var openers sync.WaitGroup
	for range min(keyOpeners, len(indexes)) {
		openers.Go(func() {
			for i := range next {
				problems[i], failures[i] = r.openKey(ctx, store, &stored[i], page[i].First)
			}
		})
	}
	for _, i := range indexes {
		next <- i
	}
	close(next)
	openers.Wait()
	for _, i := range indexes {
		if failures[i] != nil {
			return failures[i]
		}
		if problems[i] != "" {
			c.add(KeyUnusable, page[i].First, problems[i])
		}
	}
	return nil
}

// openKey opens the versions of a key, and returns what is wrong with one, "" if nothing is. first
// is the first event that has values sealed with the key; 0: none. An error means that the key
// service or the log does not answer.
func (r *run) openKey(ctx context.Context, store Store, k *ports.SubjectKey, first event.Sequence) (problem string, err error) {
	var sealed *sealedValue
	if first > 0 && len(k.Versions) > 0 {
		if sealed, err = findValue(ctx, store, k.SubjectKeyID, first); err != nil {
			return "", err
		}
	}
	known := sealed == nil
	for _, v := range k.Versions {
		plain, err := r.dataKeys.Unwrap(ctx, v.KEK, v.Wrapped, ports.Bound(k.Partition, k.Reference, v.Version))
		switch {
		case fault.KindOf(err) == fault.Unavailable || ctx.Err() != nil:
			return "", err
		case err != nil:
			return fmt.Sprintf("version %d of key %s does not open; `backbone keys restore` brings it back from an export of keys", v.Version, k.Reference), nil //nolint:nilerr // it is the finding
		}
		key := shredding.Key{Class: k.Class, Version: v.Version, DEK: plain}
		print, err := key.Fingerprint()
		isOf := err == nil && sealed != nil && sealed.version == v.Version && sealed.envelope.IsSealedWith(key, sealed.at, k.Subject)
		plain.Zero()
		switch {
		case err != nil:
			return "", err
		case print != v.Fingerprint:
			return fmt.Sprintf("version %d of key %s has another fingerprint than is stored: an erasure would name the wrong key", v.Version, k.Reference), nil
		case sealed != nil && sealed.version == v.Version && !isOf:
			return fmt.Sprintf("version %d of key %s is not the one that sealed this event", v.Version, k.Reference), nil
		}
		known = known || isOf
	}
	if !known && k.State != shredding.KeyDestroyed && (k.State != shredding.KeyFenced || !r.destroyed[receiptLine(k.SubjectKeyID)]) {
		return fmt.Sprintf("key %s lacks version %d, which sealed this event", k.Reference, sealed.version), nil
	}
	return "", nil
}

// readDestroyed reads which keys receipts name. A key of a database that was restored and replayed is
// fenced, has versions that were minted after the erasure, and lacks those that a receipt destroyed.
func (r *run) readDestroyed(ctx context.Context) error {
	r.destroyed = map[string]bool{}
	return ports.EachReceipt(ctx, r.keyStore, 1, func(receipt ports.ErasureReceipt) error {
		text, _, _ := strings.Cut(string(receipt.Note), "\n\n")
		for line := range strings.SplitSeq(text, "\n") {
			if words := strings.SplitN(line, " ", 4); len(words) == 4 {
				r.destroyed[strings.Join(words[:3], " ")] = true
			}
		}
		return nil
	})
}

// receiptLine is how the line of a key begins in a receipt (erasure.Receipt).
func receiptLine(id ports.SubjectKeyID) string {
	return fmt.Sprintf("%d %s %s", id.Partition, id.Class, id.Subject)
}

// sealedValue is a value of an event with the place where it was sealed.
type sealedValue struct {
	envelope shredding.Envelope
	version  uint32
	at       shredding.Location
}

// findValue finds a value that a key sealed in an event, nil if there is none: a row that names
// the wrong event has a finding of its own.
func findValue(ctx context.Context, store Store, id ports.SubjectKeyID, n event.Sequence) (*sealedValue, error) {
	events, err := store.ChainPage(ctx, id.Partition, n-1, 1)
	switch {
	case err != nil && fault.KindOf(err) != fault.Internal:
		return nil, err
	case err != nil || len(events) == 0 || events[0].Sequence != n:
		return nil, nil //nolint:nilerr // an event that cannot be read has a finding of its own
	}
	e := &events[0]
	found, err := shredding.FindSealed(e.Payload)
	if err != nil {
		return nil, nil //nolint:nilerr // it has a finding of its own
	}
	for _, s := range found {
		if h, err := s.Envelope.Header(); err == nil && s.Subject == id.Subject && h.Class == id.Class {
			at := shredding.Location{Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion, Pointer: s.Pointer}
			return &sealedValue{s.Envelope, h.Version, at}, nil
		}
	}
	return nil, nil
}
