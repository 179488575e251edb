package snapshots

import (
	"context"

	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const pageDomain = "backbone/archived-states/v1"

// Archived finds the states from which nothing needs archived events. A nil one finds none.
type Archived struct {
	states  ports.ArchivedStates
	streams ports.StreamSnapshots // counts redactions
	*Authenticator
}

// NewArchived makes Archived.
func NewArchived(states ports.ArchivedStates, streams ports.StreamSnapshots, a *Authenticator) *Archived {
	return &Archived{states, streams, a}
}

// pageText is what the MAC of a page covers.
func pageText(p *ports.ArchivedStatePage) []byte {
	return newText(pageDomain, p.Partition).number64(uint64(p.Segment)).text(p.FirstKey).text(string(p.Packed))
}

// Pages packs the states of a segment of a tenant.
func (a *Archived) Pages(ctx context.Context, le ports.LegalEntity, segment event.Sequence, states []archive.State) ([]ports.ArchivedStatePage, error) {
	packed, err := archive.PackStates(states)
	if err != nil {
		return nil, err
	}
	pages := make([]ports.ArchivedStatePage, len(packed))
	for i := range packed {
		page := &pages[i]
		*page = ports.ArchivedStatePage{Partition: le.Partition, Segment: segment, StatePage: packed[i]}
		if page.MAC, err = a.sign(ctx, le.TenantID, pageText(page)); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// Unpack reads the states of a page; none if a node did not make it.
func (a *Archived) Unpack(ctx context.Context, le ports.LegalEntity, page ports.ArchivedStatePage) ([]archive.State, error) {
	genuine, err := a.check(ctx, le.TenantID, pageText(&page), page.MAC, "archive", "partition", uint32(le.Partition), "segment", uint64(page.Segment))
	if err != nil || !genuine {
		return nil, err
	}
	return archive.UnpackStates(page.Packed)
}

// Entity finds the newest state of an entity; nil if there is none that may be used.
func (a *Archived) Entity(ctx context.Context, le ports.LegalEntity, key string) (*archive.State, error) {
	if a == nil {
		return nil, nil
	}
	page, found, err := a.states.EntityStatePage(ctx, le.Partition, key)
	if err != nil || !found {
		return nil, err
	}
	s, err := a.find(ctx, le, &page, key)
	if err != nil || s == nil {
		return nil, err
	}
	redactions, err := a.states.EntityRedactions(ctx, le.Partition, key, event.Sequence(s.AsOf))
	if err != nil || redactions != s.Redactions {
		return nil, err
	}
	return s, nil
}

// Stream finds the newest state of a stream; nil if there is none that may be used.
func (a *Archived) Stream(ctx context.Context, le ports.LegalEntity, stream event.StreamID) (*archive.State, error) {
	if a == nil {
		return nil, nil
	}
	page, found, err := a.states.StreamStatePage(ctx, le.Partition, stream)
	if err != nil || !found {
		return nil, err
	}
	s, err := a.find(ctx, le, &page, archive.StreamKey(stream))
	if err != nil || s == nil {
		return nil, err
	}
	redactions, err := a.streams.StreamRedactions(ctx, le.Partition, stream, event.Version(s.AsOf))
	if err != nil || redactions != s.Redactions {
		return nil, err
	}
	return s, nil
}

// EntityRedactions counts the redactions that a state of an entity includes.
func (a *Archived) EntityRedactions(ctx context.Context, p event.PartitionID, key string, until event.Sequence) (uint64, error) {
	return a.states.EntityRedactions(ctx, p, key, until)
}

// StreamRedactions counts those of a stream up to a version.
func (a *Archived) StreamRedactions(ctx context.Context, p event.PartitionID, stream event.StreamID, until event.Version) (uint64, error) {
	return a.streams.StreamRedactions(ctx, p, stream, until)
}

// find checks the MAC of a page and finds a state in it. A page that cannot be checked is not used.
func (a *Archived) find(ctx context.Context, le ports.LegalEntity, page *ports.ArchivedStatePage, key string) (*archive.State, error) {
	genuine, err := a.check(ctx, le.TenantID, pageText(page), page.MAC, "archive", "partition", uint32(le.Partition), "segment", uint64(page.Segment))
	if err != nil || !genuine {
		return nil, nil //nolint:nilerr // logged; folding gives the same state
	}
	s, err := archive.FindState(page.Packed, key)
	if err != nil {
		a.log.WarnContext(ctx, "states of the archive cannot be read and are not used; the events are folded", "code", fault.CodeOf(err), "partition", uint32(le.Partition))
		return nil, nil
	}
	return s, nil
}
