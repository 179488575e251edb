package vault

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Open implements module.Opener. A reader gets "[REDACTED]" for a value whose key was
// destroyed, "[MASKED]" for a value whose class its roles do not read, and otherwise the
// value. The class is the one that the type and version declare in which the value was
// sealed; only module.Planning reads a value of unknown class. Readers who may not read a
// value still learn that its key was destroyed, if the key store is available: that is no
// secret, and they must not think that the value still exists. A copy from another partition
// than its document's is pii.unsealable, unless the document names no partition.
func (v *Vault) Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error {
	o := opening{vault: v, reader: r, documents: documents}
	if err := o.find(ctx); err != nil || len(o.values) == 0 {
		return err
	}
	if len(o.wants) > 0 {
		if err := v.ready(); err != nil {
			return err
		}
	}
	opened, err := o.openAll(ctx)
	if fault.CodeOf(err) == codeKeyEvicted {
		opened, err = o.openAll(ctx)
	}
	if err != nil {
		return err
	}
	for i, document := range opened {
		if document != nil {
			documents[i].Document = document
		}
	}
	v.Observer.Opened(o.opened)
	v.Observer.Redacted(o.redacted)
	return nil
}

// opening is one call of Open.
type opening struct {
	vault     *Vault
	reader    module.Reader
	documents []module.SealedDocument

	found     [][]shredding.Sealed // by document, in document order; nil: none
	values    [][]sealedValue      // of found, in the same order
	wants     []want               // keys to open with
	withheld  []ports.SubjectKeyID // keys of withheld values
	known     map[want]bool
	manifests map[recordType]*shredding.Manifest

	disclosed        []module.Opened       // what the reader is given, without that of module.Planning
	places           map[module.Opened]int // in disclosed, by all but the number of values
	opened, redacted int
}

// disclose counts an opened value.
func (o *opening) disclose(v *sealedValue) {
	if v.class == "" {
		return // module.Planning
	}
	d := module.Opened{Partition: v.at.Partition, Subject: v.want.id.Subject, Class: v.class}
	place, known := o.places[d]
	if !known {
		if o.places == nil {
			o.places = map[module.Opened]int{}
		}
		place = len(o.disclosed)
		o.places[d], o.disclosed = place, append(o.disclosed, d)
	}
	o.disclosed[place].Values++
}

type sealedValue struct {
	at       shredding.Location
	want     want
	class    shredding.Class // "": unknown, which only module.Planning reads
	withheld bool
}

// recordType names the type that declares a value's class.
type recordType struct {
	partition event.PartitionID // types of the same name differ between tenants
	kind      shredding.Kind
	name      string
	version   uint32
}

// find lists all sealed values and their keys.
func (o *opening) find(ctx context.Context) error {
	for i, document := range o.documents {
		if !shredding.HasSealed(document.Document) {
			continue
		}
		all, err := shredding.FindSealed(document.Document)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			continue
		}
		if o.values == nil {
			o.found, o.values, o.known = make([][]shredding.Sealed, len(o.documents)), make([][]sealedValue, len(o.documents)), map[want]bool{}
		}
		o.found[i], o.values[i] = all, make([]sealedValue, 0, len(all))
		for _, s := range all {
			value, err := o.value(ctx, document.At, s)
			if err != nil {
				return err
			}
			o.values[i] = append(o.values[i], value)
			o.addKey(value)
		}
	}
	return nil
}

// addKey adds the key of a value to those that are wanted, once.
func (o *opening) addKey(value sealedValue) {
	w := value.want
	if value.withheld {
		w.version = 0 // only the state of the key is needed
	}
	if o.known[w] {
		return
	}
	o.known[w] = true
	if value.withheld {
		o.withheld = append(o.withheld, w.id)
		return
	}
	o.wants = append(o.wants, w)
}

func (o *opening) value(ctx context.Context, document shredding.Location, s shredding.Sealed) (sealedValue, error) {
	at := document
	at.Pointer = s.Pointer
	if s.Origin != nil {
		if at = *s.Origin; document.Partition != 0 && at.Partition != document.Partition {
			return sealedValue{}, unsealable(s.Pointer)
		}
	}
	class, allowed, err := o.mayRead(ctx, at)
	if err != nil {
		return sealedValue{}, err
	}
	h, err := s.Envelope.Header()
	if err != nil {
		return sealedValue{}, err
	}
	if h.Version == 0 {
		return sealedValue{}, unsealable(s.Pointer)
	}
	id := ports.SubjectKeyID{Partition: at.Partition, Subject: s.Subject, Class: h.Class}
	return sealedValue{at: at, want: want{id, h.Version}, class: class, withheld: !allowed}, nil
}

// mayRead returns the class of a value, and whether the reader may read it.
func (o *opening) mayRead(ctx context.Context, at shredding.Location) (shredding.Class, bool, error) {
	if _, all := o.reader.(module.Planning); all {
		return "", true, nil
	}
	key := recordType{at.Partition, at.Kind, at.Type, at.SchemaVersion}
	manifest, known := o.manifests[key]
	if !known && o.vault.Manifests != nil {
		var err error
		if manifest, err = o.vault.Manifests.Manifest(ctx, at); err != nil {
			return "", false, err
		}
		if o.manifests == nil {
			o.manifests = map[recordType]*shredding.Manifest{}
		}
		o.manifests[key] = manifest
	}
	data := ""
	if at.Kind == shredding.KindEvent {
		data = "/data"
	}
	class, known := manifest.ClassAt(at.Pointer, data)
	return class, known && o.reader.Reads(at.Type, class), nil
}

// openAll returns opened copies of all documents, or an error.
func (o *opening) openAll(ctx context.Context) (opened [][]byte, err error) {
	keys, err := o.vault.acquireKeys(ctx, "", o.wants)
	if err != nil {
		return nil, err
	}
	var plains []shredding.Plain
	defer func() {
		keys.release()
		for _, p := range plains {
			p.Zero()
		}
		if err != nil {
			for _, document := range opened {
				clear(document[:cap(document)])
			}
			opened = nil
		}
	}()
	erased := o.vault.findDestroyed(ctx, o.withheld)
	o.opened, o.redacted, o.disclosed, o.places = 0, 0, nil, nil
	opened = make([][]byte, len(o.documents))
	for i, values := range o.values {
		if values == nil {
			continue
		}
		found := o.found[i]
		opened[i], err = shredding.OpenFound(make([]byte, 0, len(o.documents[i].Document)), o.documents[i].Document, found, func(n int) (shredding.Answer, error) {
			value, s := &values[n], &found[n]
			switch d := keys.deks[value.want]; {
			case value.withheld && !erased[value.want.id]:
				return shredding.Withheld(), nil
			case value.withheld, keys.destroyed[value.want]:
				o.redacted++
				return shredding.Destroyed(), nil
			case d == nil:
				return shredding.Answer{}, unsealable(s.Pointer)
			default:
				plain, err := shredding.Open(d.key, value.at, s.Subject, s.Envelope)
				if err != nil {
					return shredding.Answer{}, err
				}
				plains = append(plains, plain)
				o.opened++
				o.disclose(value)
				return shredding.Clear(plain), nil
			}
		})
		if err != nil {
			return opened, err
		}
	}
	if len(o.disclosed) > 0 {
		err = o.reader.Disclose(ctx, o.disclosed)
	}
	return opened, err
}

// unsealable is the fault that domain/shredding returns for every failure to open.
func unsealable(pointer string) error {
	return fault.New(fault.Internal, "pii.unsealable", "this sealed value cannot be opened; verify the log and the key store").WithField(pointer)
}
