// Package snapshots lets stored states prove that a node has stored them.
//
// A snapshot is a cache: without it, the events are folded. But what reads and plans take from
// it, they do not compute again, so a row that the role of the database could write would be
// believed. Each snapshot therefore carries a message authentication code (MAC) under a secret
// of its tenant, which that role cannot open. One that lacks the right code is removed and not
// used; neither is any while the key service is unavailable.
package snapshots

import (
	"context"
	"crypto/hmac"
	"encoding/binary"
	"log/slog"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

// secretPurpose names the tenants' secrets of snapshots.
const secretPurpose = "snapshot"

// The domains of the texts that are authenticated. They never change: add a new version.
const (
	entityDomain = "backbone/entity-snapshot/v1"
	streamDomain = "backbone/stream-snapshot/v1"
	partDomain   = "backbone/projection-snapshot/v1"
)

// Secrets has a secret of each tenant.
type Secrets interface {
	// Authenticate always returns the same for a tenant, purpose and text.
	Authenticate(ctx context.Context, tenantID, purpose string, text []byte) (event.Hash, error)
}

// Observer counts forged snapshots.
type Observer interface {
	// SnapshotForged reports a snapshot of an entity, a stream or a projection.
	SnapshotForged(of string)
}

// Authenticator computes and checks the MACs of snapshots.
type Authenticator struct {
	secrets  Secrets
	log      *slog.Logger
	observer Observer
}

// NewAuthenticator makes an Authenticator. A nil observer counts nothing.
func NewAuthenticator(secrets Secrets, log *slog.Logger, observer Observer) *Authenticator {
	return &Authenticator{secrets, log, observer}
}

func (a *Authenticator) sign(ctx context.Context, tenantID string, text []byte) ([]byte, error) {
	mac, err := a.secrets.Authenticate(ctx, tenantID, secretPurpose, text)
	return mac[:], err
}

// check reports whether the MAC of a text is right. It logs and counts a wrong one, and logs an
// error.
func (a *Authenticator) check(ctx context.Context, tenantID string, text, mac []byte, of string, attributes ...any) (genuine bool, err error) {
	want, err := a.sign(ctx, tenantID, text)
	switch {
	case err != nil:
		a.log.WarnContext(ctx, "snapshots cannot be checked and are not used; the events are folded", append(attributes, "code", fault.CodeOf(err), "of", of)...)
		return false, err
	case !hmac.Equal(want, mac):
		a.reportForged(ctx, of, attributes...)
		return false, nil
	}
	return true, nil
}

func (a *Authenticator) reportForged(ctx context.Context, of string, attributes ...any) {
	a.log.WarnContext(ctx, "a stored snapshot is not what a node has stored and is not used; find out who writes to the database",
		append(attributes, "code", snapshot.CodeForged, "of", of)...)
	if a.observer != nil {
		a.observer.SnapshotForged(of)
	}
}

// textBuilder builds the text of a MAC. Numbers are big-endian; text follows its length in 32 bits.
type textBuilder []byte

func newText(domain string, p event.PartitionID) textBuilder {
	return textBuilder(nil).text(domain).number32(uint32(p))
}

func (b textBuilder) text(s string) textBuilder { return append(b.number32(uint32(len(s))), s...) }

func (b textBuilder) number32(n uint32) textBuilder { return binary.BigEndian.AppendUint32(b, n) }

func (b textBuilder) number64(n uint64) textBuilder { return binary.BigEndian.AppendUint64(b, n) }

// entityText is what the MAC of an entity's snapshot covers: all but whether it is stale, which
// reads find out by themselves.
func entityText(s *ports.EntitySnapshot) []byte {
	return newText(entityDomain, s.Partition).text(s.EntityType).text(s.EntityID).number64(uint64(s.AsOf)).number64(uint64(s.Version)).
		text(s.Fold).number32(uint32(s.EffectiveThrough)).number64(uint64(s.EventCount)).number64(s.Redactions).
		number64(uint64(event.Micros(s.CreatedAt).UnixMicro())).text(string(s.State))
}

// partText is what the MAC of a part of a projection's snapshot covers, with the code that made
// the rows.
func partText(of projection.Projection, s *ports.SnapshotPart) []byte {
	code := of.Code
	if len(of.Definition) > 0 {
		code = 0
	}
	return newText(partDomain, s.Partition).text(s.Projection).number32(uint32(s.Version)).number32(uint32(code)).text(string(of.Definition)).
		number64(uint64(s.Sequence)).number64(s.Redactions).number64(s.Rows).text(string(s.Digest[:]))
}

// streamText is what the MAC of a stream's snapshot covers.
func streamText(s *ports.StreamSnapshot) []byte {
	internal := uint32(0)
	if s.Internal {
		internal = 1
	}
	return newText(streamDomain, s.Partition).text(s.Stream.Type).text(s.Stream.ID).number32(internal).number64(uint64(s.Version)).
		text(s.ID.String()).text(s.StateType).number32(uint32(s.SchemaVersion)).number64(s.Redactions).
		number64(uint64(event.Micros(s.CreatedAt).UnixMicro())).text(string(s.State)).text(string(s.Metadata))
}
