package blindindex

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/blindindex"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// secretPurpose names the tenants' secrets of the index.
const secretPurpose = "blind-index"

// hash returns the hash of a term of a kind, under the tenant's key of the kind.
func (x *Index) hash(ctx context.Context, tenantID, kind, term string) (out blindindex.Hash, err error) {
	secret, err := x.Secrets.Derive(ctx, tenantID, secretPurpose, kind)
	if err != nil {
		return out, err
	}
	defer secret.Zero()
	return out, secret.Use(func(key []byte) error {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(term))
		copy(out[:], mac.Sum(nil))
		return nil
	})
}

// key tells the rules and the tenant's secret, under which the hashes of a log are.
func (x *Index) key(ctx context.Context, tenantID string) (blindindex.Hash, error) {
	return x.hash(ctx, tenantID, "key", blindindex.Rules)
}

// dataPointer is where the data of an event are in its payload.
const dataPointer = "/data"

// sealedRecord is an event, or the intent that it is about, with its searchable values, sealed.
type sealedRecord struct {
	event  *event.Recorded
	values []sealedValue
	opened module.SealedDocument // a JSON array of the values
}

type sealedValue struct {
	subject  shredding.Subject
	keyClass shredding.KeyClass
	class    shredding.Class
	path     string // in the data or payload, as it is declared
}

// maxPending bounds the entries that are kept in memory, but for those of one record.
const maxPending = 10_000

// entries computes what the index has of events. One whose values cannot be opened, which
// verification finds, is left out: the index must move on, because erasures wait for it. Erased
// values are left out too. When there are many entries, store gets those up to a sequence, and
// entries returns only those of the events behind it.
func (x *Index) entries(ctx context.Context, log ports.LegalEntity, types searched, events []event.Recorded, store func(through event.Sequence, entries []blindindex.Entry) error) ([]blindindex.Entry, error) {
	known := map[blindindex.Entry]bool{}
	var entries []blindindex.Entry
	for len(events) > 0 {
		sealed, rest, err := x.takeSealed(ctx, log, types, events)
		if err == nil {
			err = x.open(ctx, log, sealed)
		}
		if err != nil {
			return nil, err
		}
		events = rest
		for _, s := range sealed {
			found, err := x.entriesOf(ctx, log, s)
			if err != nil {
				return nil, err
			}
			for _, e := range found {
				if !known[e] {
					known[e] = true
					entries = append(entries, e)
				}
			}
			if len(entries) >= maxPending {
				if err := store(s.event.Sequence, entries); err != nil {
					return nil, err
				}
				clear(known)
				entries = nil
			}
		}
	}
	return entries, nil
}

// takeSealed finds the searchable values of the first events, until they have Limits.Bytes, and
// returns the events behind these.
func (x *Index) takeSealed(ctx context.Context, log ports.LegalEntity, types searched, events []event.Recorded) (sealed []sealedRecord, rest []event.Recorded, err error) {
	size := 0
	for i := range events {
		s, err := x.findSealed(ctx, log, types, &events[i])
		if err != nil {
			return nil, nil, err
		}
		if len(s.values) > 0 {
			sealed = append(sealed, s)
			size += len(s.opened.Document)
		}
		if size >= x.Limits.Bytes {
			return sealed, events[i+1:], nil
		}
	}
	return sealed, nil, nil
}

// entriesOf computes what the index has of a record, at most blindindex.MaxTerms.
func (x *Index) entriesOf(ctx context.Context, log ports.LegalEntity, s sealedRecord) (entries []blindindex.Entry, err error) {
	if s.opened.Document == nil {
		return nil, nil
	}
	var opened []json.RawMessage
	if json.Unmarshal(s.opened.Document, &opened) != nil || len(opened) != len(s.values) {
		x.leaveOut(ctx, log, s.event, fault.New(fault.Internal, "blind_index.open_failed", "the opened values are not those that were sealed; report this defect"))
		return nil, nil //nolint:nilerr // the event is left out
	}
	for i, v := range s.values {
		for _, found := range blindindex.Values(v.path, opened[i]) {
			for _, term := range blindindex.Terms(found.Kind, found.Text) {
				if len(entries) == blindindex.MaxTerms {
					x.Logger.WarnContext(ctx, "an event or its intent has more terms than the index of personal data takes; searches do not find the others",
						"tenant", log.TenantID, "partition", uint32(log.Partition), "sequence", uint64(s.event.Sequence))
					return entries, nil
				}
				hash, err := x.hash(ctx, log.TenantID, found.Kind.String(), term)
				if err != nil {
					return nil, err
				}
				entries = append(entries, blindindex.Entry{
					Partition: log.Partition, Kind: found.Kind, Hash: hash, Subject: v.subject, KeyClass: v.keyClass, Class: v.class, Type: s.opened.At.Type, Path: v.path,
				})
			}
		}
	}
	return entries, nil
}

// findSealed lists the sealed values that may hold what is searched for, of an event or of the
// intent that it is about.
func (x *Index) findSealed(ctx context.Context, log ports.LegalEntity, types searched, e *event.Recorded) (sealedRecord, error) {
	if intent.IsAbout(e.Type) {
		return x.findInIntent(ctx, log, e)
	}
	at := shredding.Location{Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion}
	return x.findIn(ctx, log, e, at, e.Payload, types.manifest(e.Type, e.SchemaVersion), dataPointer), nil
}

// findInIntent is findSealed for the intent that an event is about.
func (x *Index) findInIntent(ctx context.Context, log ports.LegalEntity, e *event.Recorded) (sealedRecord, error) {
	var about struct {
		Data struct {
			IntentType string `json:"intent_type"`
		} `json:"data"`
	}
	if err := json.Unmarshal(e.Payload, &about); err != nil {
		x.leaveOut(ctx, log, e, err)
		return sealedRecord{}, nil
	}
	at := module.LocationOf(&intent.Intent{Partition: log.Partition, ID: e.IntentID, Type: about.Data.IntentType})
	manifest, err := x.Manifests.Manifest(ctx, at)
	if err != nil || manifest != nil && manifest.Empty() {
		return sealedRecord{}, err
	}
	stored, err := x.Intents.Intent(ctx, log.Partition, e.IntentID)
	if err != nil {
		if mayPass(err) {
			return sealedRecord{}, err
		}
		x.leaveOut(ctx, log, e, err)
		return sealedRecord{}, nil
	}
	if manifest == nil { // no module of this node has the intent
		if shredding.HasSealed(stored.Payload) {
			x.leaveOut(ctx, log, e, fault.New(fault.FailedPrecondition, "intent.type_unknown", "no module of this node has intents of type %s", stored.Type))
		}
		return sealedRecord{}, nil
	}
	return x.findIn(ctx, log, e, at, stored.Payload, manifest, ""), nil
}

// findIn lists the sealed values of a record that may hold what is searched for, none if one is
// malformed.
func (x *Index) findIn(
	ctx context.Context, log ports.LegalEntity, e *event.Recorded, at shredding.Location, payload []byte, manifest *shredding.Manifest, data string,
) (out sealedRecord) {
	if !shredding.HasSealed(payload) {
		return out
	}
	all, err := shredding.FindSealed(payload)
	if err != nil {
		x.leaveOut(ctx, log, e, err)
		return out
	}
	out.event = e
	document := []byte{'['}
	for _, s := range all {
		path, class, known := manifest.FieldAt(s.Pointer, data)
		if !known || !blindindex.IsSearched(class) {
			continue
		}
		header, err := s.Envelope.Header()
		if err != nil {
			x.leaveOut(ctx, log, e, err)
			return sealedRecord{}
		}
		if len(out.values) > 0 {
			document = append(document, ',')
		}
		out.values = append(out.values, sealedValue{subject: s.Subject, keyClass: header.Class, class: class, path: path})
		s.SetOrigin(at)
		document = s.Append(document)
	}
	out.opened = module.SealedDocument{At: at, Document: append(document, ']')}
	return out
}

// open opens the values of all records together, so that each key is fetched once. If one of them
// cannot be opened it opens the records one by one and leaves out those that fail for good.
func (x *Index) open(ctx context.Context, log ports.LegalEntity, sealed []sealedRecord) error {
	if len(sealed) == 0 {
		return nil
	}
	documents := make([]module.SealedDocument, len(sealed))
	for i := range sealed {
		documents[i] = sealed[i].opened
	}
	err := x.Opener.Open(ctx, documents, module.Planning{})
	if err != nil && mayPass(err) {
		return err
	}
	for i := range documents {
		one := documents[i : i+1]
		if err != nil {
			if failed := x.Opener.Open(ctx, one, module.Planning{}); failed != nil {
				if mayPass(failed) {
					return failed
				}
				x.leaveOut(ctx, log, sealed[i].event, failed)
				one[0].Document = nil
			}
		}
		sealed[i].opened = one[0]
	}
	return nil
}

// mayPass reports whether values may open when it is tried again: a store or the key service does not
// answer, the caller has ended, or this node has no key service. An error that is no fault counts too.
func mayPass(err error) bool {
	f, isFault := fault.As(err)
	if !isFault {
		return true
	}
	switch f.Kind {
	case fault.Unavailable, fault.Timeout, fault.TooMany:
		return true
	}
	return f.Code == "pii.keys_missing"
}

// leaveOut reports an event whose values, or those of its intent, are not found by searches.
func (x *Index) leaveOut(ctx context.Context, log ports.LegalEntity, e *event.Recorded, why error) {
	x.Logger.ErrorContext(ctx, "a sealed value cannot be opened and is not found by searches; verify the log and the key store",
		"tenant", log.TenantID, "partition", uint32(e.Partition), "sequence", uint64(e.Sequence), "code", fault.CodeOf(why))
}
