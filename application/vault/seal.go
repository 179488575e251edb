package vault

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const codeKeyEvicted = "pii.key_evicted"

// sealedSize estimates by how many bytes sealing lengthens a value.
const sealedSize = 256

// Seal implements module.Sealer. A field of a subject that is fenced or destroyed is
// pii.subject_erased with the field's pointer.
func (v *Vault) Seal(ctx context.Context, r module.SealRequest) (document []byte, used []event.SealedSubject, err error) {
	if len(r.Fields) == 0 {
		return r.Document, nil, nil
	}
	if err := v.ready(); err != nil {
		return nil, nil, err
	}
	document, used, err = v.sealOnce(ctx, r)
	if fault.CodeOf(err) == codeKeyEvicted {
		document, used, err = v.sealOnce(ctx, r)
	}
	if err != nil {
		return nil, nil, err
	}
	v.Observer.Sealed(len(r.Fields))
	return document, used, nil
}

func (v *Vault) sealOnce(ctx context.Context, r module.SealRequest) ([]byte, []event.SealedSubject, error) {
	wantOf := func(s shredding.Subject) want {
		return want{id: ports.SubjectKeyID{Partition: r.At.Partition, Subject: s, Class: r.Class}}
	}
	var wants []want
	place := make(map[shredding.Subject]int, 1)
	for _, f := range r.Fields {
		if _, ok := place[f.Subject]; !ok {
			place[f.Subject] = len(wants)
			wants = append(wants, wantOf(f.Subject))
		}
	}
	keys, err := v.acquireKeys(ctx, r.TenantID, wants)
	if err != nil {
		return nil, nil, err
	}
	defer keys.release()
	used := make([]event.SealedSubject, len(wants))
	for _, f := range r.Fields {
		w := wantOf(f.Subject)
		d := keys.deks[w]
		if d == nil {
			return nil, nil, shredding.Erased(f.Pointer)
		}
		used[place[f.Subject]] = event.SealedSubject{Subject: string(f.Subject), KeyClass: uint8(d.key.Class), KeyVersion: d.key.Version}
	}
	at := r.At
	document, err := shredding.SealDocument(make([]byte, 0, len(r.Document)+sealedSize*len(r.Fields)), r.Document, r.Fields,
		func(f shredding.Field, value []byte) (shredding.Envelope, error) {
			u := &used[place[f.Subject]]
			if u.Pointers == nil {
				u.Pointers = make([]string, 0, len(r.Fields))
			}
			u.Pointers = append(u.Pointers, f.Pointer)
			at.Pointer = f.Pointer
			return shredding.Seal(keys.deks[wantOf(f.Subject)].key, at, f.Subject, value)
		})
	if err != nil {
		return nil, nil, err
	}
	return document, used, nil
}
