package redaction

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// CertificateFormat is the format of the certificates of redactions.
const CertificateFormat = "backbone/redaction-certificate/v1"

const certificateFolder = "redactions/"

// Certificate proves a redaction. It holds no value.
type Certificate struct {
	Format      string             `json:"format"`
	RequestID   event.ID           `json:"request_id"`
	TenantID    string             `json:"tenant_id"`
	LegalEntity string             `json:"legal_entity"`
	EventID     event.ID           `json:"event_id"`
	Sequence    event.Sequence     `json:"sequence"`
	EventType   string             `json:"event_type"`
	Pointers    []string           `json:"pointers"`
	Reason      string             `json:"reason"`
	RequestedBy string             `json:"requested_by"`
	RequestedAt time.Time          `json:"requested_at"`
	ApprovedBy  string             `json:"approved_by"`
	ApprovedAt  time.Time          `json:"approved_at"`
	RedactedAt  time.Time          `json:"redacted_at"`
	OldHash     string             `json:"old_payload_hash"`
	NewHash     string             `json:"new_payload_hash"`
	AnnouncedIn event.Sequence     `json:"announced_in"`   // sequence of the event that vouches for the new payload
	ToRebuild   []string           `json:"to_rebuild"`     // projections whose rows of the entity could not be recomputed alone
	Chain       ports.ChainVerdict `json:"verified_chain"` // of the log
	OutOfReach  []string           `json:"out_of_reach"`
}

// outOfReach lists the copies that a redaction does not reach.
func outOfReach() []string {
	return []string{
		"backups of the database, and its write-ahead log, until they are deleted",
		"the stored payload of the intent that led to the event, which answers no longer show",
		"documents, reports and exports that were taken out of this system",
		"systems that received the event or answers while the values were readable",
	}
}

func certificateName(id event.ID) string { return certificateFolder + id.String() + ".json" }

// results are what the step that recomputes rows found.
type results struct {
	ToRebuild []string `json:"to_rebuild"`
}

// certify verifies the log, signs the certificate and stores it. An earlier attempt may have
// stored one, whose verdict is older: it stays. What a session of the database redacted without an
// approval is never certified.
func (c Config) certify(ctx context.Context, le ports.LegalEntity, r ports.RedactionRequest) error {
	if err := c.requireApproval(ctx, r); err != nil {
		return err
	}
	name := certificateName(r.ID)
	stored, err := c.Exports.Get(ctx, name)
	if err == nil {
		var d struct {
			Certificate struct {
				RequestID event.ID `json:"request_id"`
			} `json:"certificate"`
		}
		if json.Unmarshal(stored, &d) != nil || d.Certificate.RequestID != r.ID {
			return fault.New(fault.Internal, "redaction.certificate_changed", "the export store has another document under the name of the certificate; find out who stored it")
		}
		return nil
	}
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	done, err := c.redactionOf(ctx, r)
	if err != nil {
		return err
	}
	e, err := c.Events.EventByID(ctx, r.Partition, r.EventID)
	if err != nil {
		return err
	}
	announced, err := c.announcedAt(ctx, r)
	if err != nil {
		return err
	}
	verdict, err := c.Chains.VerifyChain(ctx, le)
	if err != nil {
		return err
	}
	if verdict.Findings > 0 {
		return fault.New(fault.Internal, "redaction.chain_unsound", "the log of the legal entity is not sound; run `backbone verify`")
	}
	var left results
	if err := json.Unmarshal(r.Results, &left); err != nil {
		left.ToRebuild = []string{}
	}
	document, err := shredding.SignCertificate(CertificateFormat, r.ID, Certificate{
		Format: CertificateFormat, RequestID: r.ID, TenantID: r.TenantID, LegalEntity: le.Code, EventID: r.EventID, Sequence: r.Sequence, EventType: e.Type,
		Pointers: r.Pointers, Reason: r.Reason, RequestedBy: r.RequestedBy, RequestedAt: event.Micros(r.RequestedAt),
		ApprovedBy: r.ApprovedBy, ApprovedAt: event.Micros(r.ApprovedAt), RedactedAt: event.Micros(done.RedactedAt),
		OldHash: hex.EncodeToString(done.OldPayloadHash[:]), NewHash: hex.EncodeToString(done.NewPayloadHash[:]),
		AnnouncedIn: announced, ToRebuild: left.ToRebuild, Chain: verdict, OutOfReach: outOfReach(),
	}, func(text []byte) ([]byte, error) { return c.Notes.SignNote(ctx, text) })
	if err != nil {
		return err
	}
	return c.Exports.PutIfAbsent(ctx, name, document)
}

// VerifyCertificate checks that a certificate of a redaction was signed and that no byte was changed since, with the
// faults of shredding.OpenCertificate and of the opener.
func VerifyCertificate(document []byte, notes ports.NoteOpener, verifierKeys ...string) (Certificate, error) {
	var out Certificate
	err := shredding.OpenCertificate(document, CertificateFormat, &out, func() event.ID { return out.RequestID },
		func(note []byte) ([]byte, error) { return notes.OpenNote(note, verifierKeys...) })
	if err != nil {
		return Certificate{}, err
	}
	return out, nil
}

// Summary renders a certificate as text for a person, on several lines.
func (c Certificate) Summary() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("Redaction", "%s of tenant %s, legal entity %s", c.RequestID, c.TenantID, c.LegalEntity)
	line("Event", "%s, sequence %d, %s", c.EventID, c.Sequence, c.EventType)
	line("Values", "%s", strings.Join(c.Pointers, " "))
	line("Requested", "by %s at %s", c.RequestedBy, c.RequestedAt.Format(time.RFC3339))
	line("Approved", "by %s at %s", c.ApprovedBy, c.ApprovedAt.Format(time.RFC3339))
	line("Redacted", "%s, announced in sequence %d", c.RedactedAt.Format(time.RFC3339), c.AnnouncedIn)
	line("Log", "sound up to sequence %d", c.Chain.Head)
	for _, name := range c.ToRebuild {
		line("To be rebuilt", "%s", name)
	}
	for i, place := range c.OutOfReach {
		name := ""
		if i == 0 {
			name = "Not reached"
		}
		line(name, "%s", place)
	}
	return b.String()
}
