package ap_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// memoryVault keeps one key per person, which is there until the person is erased.
type memoryVault struct {
	mu     sync.Mutex
	erased map[shredding.Subject]bool
}

func newMemoryVault() *memoryVault { return &memoryVault{erased: map[shredding.Subject]bool{}} }

func (s *memoryVault) erase(subjects ...shredding.Subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, subject := range subjects {
		s.erased[subject] = true
	}
}

func (s *memoryVault) isErased(subject shredding.Subject) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.erased[subject]
}

func (s *memoryVault) key(subject shredding.Subject, class shredding.KeyClass) (shredding.Key, error) {
	dek := sha256.Sum256([]byte(subject))
	return shredding.NewKey(class, 1, dek[:])
}

// Seal implements module.Sealer.
func (s *memoryVault) Seal(_ context.Context, r module.SealRequest) ([]byte, []event.SealedSubject, error) {
	var used []event.SealedSubject
	out, err := shredding.SealDocument(nil, r.Document, r.Fields, func(f shredding.Field, value []byte) (shredding.Envelope, error) {
		if s.isErased(f.Subject) {
			return nil, shredding.Erased(f.Pointer)
		}
		key, err := s.key(f.Subject, r.Class)
		if err != nil {
			return nil, err
		}
		used = append(used, event.SealedSubject{Subject: f.Subject.String(), KeyClass: uint8(r.Class), KeyVersion: 1, Pointers: []string{f.Pointer}})
		at := r.At
		at.Pointer = f.Pointer
		return shredding.Seal(key, at, f.Subject, value)
	})
	return out, used, err
}

// Open implements module.Opener.
func (s *memoryVault) Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error {
	var opened []module.Opened
	for i, d := range documents {
		out, err := shredding.OpenDocument(nil, d.Document, func(v shredding.Sealed) (shredding.Answer, error) {
			at := d.At
			at.Pointer = v.Pointer
			if v.Origin != nil {
				at = *v.Origin
			}
			class := classAt(at)
			if !r.Reads(at.Type, class) {
				return shredding.Withheld(), nil
			}
			if !s.isErased(v.Subject) {
				opened = append(opened, module.Opened{Partition: at.Partition, Subject: v.Subject, Class: class, Values: 1})
			}
			return s.answer(v, at)
		})
		if err != nil {
			return err
		}
		documents[i].Document = out
	}
	return r.Disclose(ctx, opened)
}

// classAt is the class that the type of an event declares for a value.
func classAt(at shredding.Location) shredding.Class {
	for i := range catalog.EventTypes {
		t := &catalog.EventTypes[i]
		if t.Type == at.Type && t.SchemaVersion == at.SchemaVersion {
			manifest, _ := eventtype.Manifest(t.PIIFields)
			class, _ := manifest.ClassAt(at.Pointer, "/data")
			return class
		}
	}
	return ""
}

// Forget implements module.Sealer.
func (s *memoryVault) Forget(event.PartitionID, []event.SealedSubject) {}

// LeaseKeys implements memory.KeyLeases.
func (s *memoryVault) LeaseKeys(ids []ports.SubjectKeyID) ([]ports.SubjectKey, func()) {
	keys := make([]ports.SubjectKey, len(ids))
	for i, id := range ids {
		keys[i] = ports.SubjectKey{SubjectKeyID: id, State: shredding.KeyActive, Active: 1}
		if s.isErased(id.Subject) {
			keys[i] = ports.SubjectKey{SubjectKeyID: id, State: shredding.KeyDestroyed}
		}
	}
	return keys, func() {}
}

// open opens copies, by the places that they bring along.
func (s *memoryVault) open(t *testing.T, document []byte) string {
	t.Helper()
	out, err := shredding.OpenDocument(nil, document, func(v shredding.Sealed) (shredding.Answer, error) {
		if v.Origin == nil {
			return shredding.Answer{}, fmt.Errorf("the copy at %s does not say where it was sealed", v.Pointer)
		}
		return s.answer(v, *v.Origin)
	})
	require.NoError(t, err)
	return string(out)
}

// openEvent opens the data of an event.
func (s *memoryVault) openEvent(t *testing.T, e event.Recorded) string {
	t.Helper()
	at := shredding.Location{Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion}
	out, err := shredding.OpenDocument(nil, e.Payload, func(v shredding.Sealed) (shredding.Answer, error) {
		at.Pointer = v.Pointer
		return s.answer(v, at)
	})
	require.NoError(t, err)
	var body event.Body
	require.NoError(t, json.Unmarshal(out, &body))
	return string(body.Data)
}

func (s *memoryVault) answer(v shredding.Sealed, at shredding.Location) (shredding.Answer, error) {
	if s.isErased(v.Subject) {
		return shredding.Destroyed(), nil
	}
	header, err := v.Envelope.Header()
	if err != nil {
		return shredding.Answer{}, err
	}
	key, err := s.key(v.Subject, header.Class)
	if err != nil {
		return shredding.Answer{}, err
	}
	plain, err := shredding.Open(key, at, v.Subject, v.Envelope)
	return shredding.Clear(plain), err
}
