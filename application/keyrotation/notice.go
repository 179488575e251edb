package keyrotation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// NoticeName returns the name of the notice of an ended epoch in the export store. A restored
// database may end the same epoch number again, with another key; that notice is stored as
// ended-2.note, and so on.
func NoticeName(tenantID string, epoch uint32) string {
	return fmt.Sprintf("epochs/%s/%d/ended.note", segment(tenantID), epoch)
}

// exportNotice exports the signed notice of an ended epoch, once. The notice names the
// erasures that no backup can undo after the KEK is deleted: those that the successor
// covers.
func (s *Service) exportNotice(ctx context.Context, ended ports.KEK, successor uint32, destroyedAt time.Time) error {
	name, exists, err := s.findNotice(ctx, ended)
	if err != nil || exists {
		return err
	}
	covers, err := s.readCoverage(ctx, ended.TenantID, successor)
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "backbone/epoch-notice/v1\ntenant %s\nended epoch %d\nkey %s\nsucceeded by epoch %d\nkey destroyed at %s\ncovers erasure receipts to %d\n",
		ended.TenantID, ended.Epoch, ended.KeyID, successor, destroyedAt.UTC().Format(time.RFC3339), covers)
	note, err := s.c.Notary.SignNote(ctx, text)
	if err != nil {
		return err
	}
	err = s.c.Exports.PutIfAbsent(ctx, name, note)
	if fault.CodeOf(err) == "export.name_taken" {
		return nil // another process exported it
	}
	return err
}

// findNotice returns the name of a KEK's notice, and whether the notice exists.
func (s *Service) findNotice(ctx context.Context, ended ports.KEK) (name string, exists bool, err error) {
	first := NoticeName(ended.TenantID, ended.Epoch)
	name = first
	for n := 2; ; n++ {
		note, err := s.c.Exports.Get(ctx, name)
		if fault.KindOf(err) == fault.NotFound {
			return name, false, nil
		}
		if err != nil {
			return name, false, err
		}
		if strings.Contains(string(note), "\nkey "+ended.KeyID+"\n") {
			return name, true, nil
		}
		name = fmt.Sprintf("%s-%d.note", strings.TrimSuffix(first, ".note"), n)
	}
}

// checkFingerprint compares an unwrapped key with its stored fingerprint.
func checkFingerprint(plain shredding.Secret, row ports.WrappedRow) error {
	if row.Fingerprint == (shredding.Fingerprint{}) {
		return nil // a secret that has none
	}
	got, err := shredding.Key{DEK: plain}.Fingerprint()
	if err == nil && got != row.Fingerprint {
		err = fault.New(fault.Internal, "keys.fingerprint_differs", "unwrapping key %s gives another key than its fingerprint names; keep the old epoch and restore the key store's row from an export", row.Reference)
	}
	return err
}
