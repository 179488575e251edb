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

// NoticeName returns the name of the first notice of an ended epoch in the export store. A
// restored database may end the same epoch number again, with another key, and a deletion that
// was cancelled is scheduled again; the next notice is stored as ended-2.note, and so on.
func NoticeName(tenantID string, epoch uint32) string {
	return fmt.Sprintf("epochs/%s/%d/ended.note", segment(tenantID), epoch)
}

// exportNotice exports the signed notice of an ended epoch, once for each time at which the key
// service destroys the KEK: a deletion that was cancelled and scheduled again has a later one.
// The notice with the highest number tells the last one. It names the erasures that no backup can
// undo after the KEK is deleted: those that the successor covers.
func (s *Service) exportNotice(ctx context.Context, ended ports.KEK, successor uint32, destroyedAt time.Time) error {
	line := destroyedLine(destroyedAt)
	name, last, err := s.lastNotice(ctx, ended)
	if err != nil || strings.Contains(last, line) {
		return err
	}
	return s.putNotice(ctx, name, ended, successor, line)
}

// exportLastNotice does so for a KEK that the key service has destroyed already. When it did so
// is in the last notice; if there is none, it was now at the latest.
func (s *Service) exportLastNotice(ctx context.Context, ended ports.KEK, successor uint32, now time.Time) error {
	name, last, err := s.lastNotice(ctx, ended)
	if err != nil || last != "" {
		return err
	}
	return s.putNotice(ctx, name, ended, successor, destroyedLine(now))
}

func destroyedLine(at time.Time) string {
	return fmt.Sprintf("\nkey destroyed at %s\n", at.UTC().Format(time.RFC3339))
}

func (s *Service) putNotice(ctx context.Context, name string, ended ports.KEK, successor uint32, destroyedLine string) error {
	covers, err := s.readCoverage(ctx, ended.TenantID, successor)
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "backbone/epoch-notice/v1\ntenant %s\nended epoch %d\nkey %s\nsucceeded by epoch %d%scovers erasure receipts to %d\n",
		ended.TenantID, ended.Epoch, ended.KeyID, successor, destroyedLine, covers)
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

// lastNotice returns the last notice of a KEK, "" if there is none, and the name of the next one.
func (s *Service) lastNotice(ctx context.Context, ended ports.KEK) (next, last string, err error) {
	first := NoticeName(ended.TenantID, ended.Epoch)
	next = first
	for n := 2; ; n++ {
		note, err := s.c.Exports.Get(ctx, next)
		if fault.KindOf(err) == fault.NotFound {
			return next, last, nil
		}
		if err != nil {
			return next, last, err
		}
		if strings.Contains(string(note), "\nkey "+ended.KeyID+"\n") {
			last = string(note)
		}
		next = fmt.Sprintf("%s-%d.note", strings.TrimSuffix(first, ".note"), n)
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
