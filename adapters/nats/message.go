package nats

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// message makes a CloudEvent in binary mode: attributes as headers with the prefix
// ce-, the event itself as the body. Extensions: tenantid, legalentity, sequence,
// schemaversion, recordedtime, correlationid, causedby, intentid, actortype, streamversion,
// partitionkey (the stream, whose order is kept) and, on a message without data,
// dataomitted.
func (p *Publisher) message(m *ports.Message) *client.Msg {
	e := &m.Skeleton
	id := e.ID.String()
	h := client.Header{}
	set := func(name, value string) {
		if value != "" {
			h["ce-"+name] = []string{headerText(value)}
		}
	}
	h[client.MsgIdHdr] = []string{id}
	h[client.ExpectedStreamHdr] = []string{p.config.Stream}
	set("specversion", "1.0")
	set("id", id)
	set("source", Source(e))
	set("type", e.Type)
	set("subject", e.Stream.String())
	set("time", e.OccurredAt.UTC().Format(time.RFC3339Nano))
	set("datacontenttype", "application/json")
	set("tenantid", e.Scope.TenantID)
	set("legalentity", e.Scope.LegalEntity)
	set("sequence", fmt.Sprintf("%020d", e.Sequence)) // padded, so that texts sort like numbers, as the extension requires
	set("partitionkey", e.Stream.String())
	set("streamversion", strconv.FormatUint(uint64(e.StreamVersion), 10))
	set("schemaversion", strconv.FormatUint(uint64(e.SchemaVersion), 10))
	set("recordedtime", e.RecordedAt.UTC().Format(time.RFC3339Nano))
	set("correlationid", e.CorrelationID)
	set("actortype", string(e.ActorType))
	if e.CausedBy != (event.ID{}) {
		set("causedby", e.CausedBy.String())
	}
	if e.IntentID != (event.ID{}) {
		set("intentid", e.IntentID.String())
	}
	if m.Reference {
		set("dataomitted", "true")
	}
	return &client.Msg{Subject: Subject(p.config.SubjectPrefix, e), Header: h, Data: m.Body}
}

// Source is the CloudEvents source of an event: with the id it names the event.
func Source(e *event.Skeleton) string {
	return "/tenants/" + url.PathEscape(e.Scope.TenantID) + "/legal-entities/" + url.PathEscape(e.Scope.LegalEntity)
}

// size returns the bytes that count against the broker's limit, headers included.
func size(m *client.Msg) int {
	n := len("NATS/1.0\r\n\r\n") + len(m.Data)
	for name, values := range m.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n + batchHeaders
}

// batchHeaders bounds the bytes that the headers of a batch add.
const batchHeaders = 160
