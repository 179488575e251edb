package erasure

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const (
	certificateFormat = "backbone/erasure-certificate/v1"

	maxEpochAge = 24 * time.Hour // the nightly rotation replaces the KEK that wrapped the destroyed keys within it
)

// Certificate proves an erasure to the person and to a supervisory authority. It holds the
// person's pseudonym and no personal data.
type Certificate struct {
	Format        string             `json:"format"`
	RequestID     event.ID           `json:"request_id"`
	TenantID      string             `json:"tenant_id"`
	Subject       string             `json:"subject"`
	LegalEntities []string           `json:"legal_entities"`
	Basis         string             `json:"basis"`
	Outcome       string             `json:"outcome"` // "complete" or "partial"
	RequestedBy   string             `json:"requested_by"`
	RequestedAt   time.Time          `json:"requested_at"`
	ApprovedBy    string             `json:"approved_by"`
	ApprovedAt    time.Time          `json:"approved_at"`
	DueOn         event.Date         `json:"due_on"`
	Classes       []Class            `json:"classes"`
	Counts        CertificateCounts  `json:"counts"`
	Times         CertificateTimes   `json:"times"`
	Verification  Results            `json:"verification"`
	Receipt       CertificateReceipt `json:"receipt"`
	OutOfReach    []string           `json:"out_of_reach"`
}

// CertificateCounts counts the erased records and keys.
type CertificateCounts struct {
	Events   int64 `json:"events"`
	Intents  int64 `json:"intents"`
	Redacted int64 `json:"redacted_values"`
	Keys     int   `json:"keys"`         // of every erased class in each log concerned; none is ever minted again
	Versions int   `json:"key_versions"` // destroyed
}

// CertificateTimes says from when the erased data cannot be read, and where.
type CertificateTimes struct {
	Destroyed   time.Time `json:"keys_destroyed_at"`                // from then on no node reads the key from the store
	Undecrypted time.Time `json:"no_node_decrypts_from"`            // a minute later at the latest
	Confirmed   time.Time `json:"nodes_confirmed_at"`               // when all nodes had reported it, or the minute was over
	Backups     time.Time `json:"backups_unreadable_from,omitzero"` // at the latest, except for persons who may cancel the deletion of a KEK in the key service; zero: not promised
	Irrevocable time.Time `json:"irrevocable_from,omitzero"`        // at the latest: the key service has destroyed the KEK; zero: not promised
	Condition   string    `json:"condition"`
}

// CertificateReceipt names the receipt outside the database.
type CertificateReceipt struct {
	Number uint64 `json:"number"`
	SHA256 string `json:"sha256"`
}

// rotationCondition qualifies Backups and Irrevocable, which lie after the certificate is
// issued.
const rotationCondition = "the last two times are reached when the key that wrapped the destroyed keys is deleted; the signed notice of its deletion names the receipts it covers and proves it"

// noRotationCondition replaces rotationCondition where no job rotates KEKs.
const noRotationCondition = "this installation rotates keys on command only, so it promises no time from which backups are unreadable; the signed notice of the deletion of the key that wrapped the destroyed keys names the receipts it covers and tells the time"

// outOfReach lists the data that an erasure does not reach.
func outOfReach(isSearched bool) []string {
	places := []string{
		"documents, reports and exports that were taken out of this system",
		"systems that received events or answers while the data were readable",
		"what persons noted down or printed",
		"rows of projections that the tenant defined itself: what they hold sealed stays sealed, and reads [REDACTED]",
	}
	if isSearched {
		places = append(places, "rows of the search index in backups of the database, until these are deleted: keyed hashes of names, e-mail addresses and telephone numbers, against which the tenant's secret lets a guess be checked")
	}
	return places
}

func certificateName(id event.ID) string { return certificateFolder + id.String() + ".json" }

// certify signs and stores the certificate, and completes the request. What a session of the key
// store destroyed without an approval is never certified.
func (c Config) certify(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	if err := c.requireApproval(ctx, r); err != nil {
		return r, err
	}
	name := certificateName(r.ID)
	stored, err := c.Exports.Get(ctx, name)
	switch {
	case err == nil:
		// Another attempt stored it, maybe signed with a key that was replaced since.
		err = checkRequest(stored, r.ID)
	case fault.KindOf(err) == fault.NotFound:
		if stored, err = c.certificate(ctx, r); err == nil {
			err = c.Exports.PutIfAbsent(ctx, name, stored)
		}
	}
	if err != nil {
		return r, err
	}
	r.State, r.CompletedAt = shredding.ErasureCompleted, c.now()
	return c.move(ctx, r)
}

func checkRequest(document []byte, id event.ID) error {
	var d struct {
		Certificate struct {
			RequestID event.ID `json:"request_id"`
		} `json:"certificate"`
	}
	if json.Unmarshal(document, &d) != nil || d.Certificate.RequestID != id {
		return fault.New(fault.Internal, "erasure.certificate_changed", "the export store has another document under the name of the certificate; find out who stored it")
	}
	return nil
}

// certificate makes the document from stored data only, so that every attempt signs the same
// certificate.
func (c Config) certificate(ctx context.Context, r ports.ErasureRequest) ([]byte, error) {
	dir, err := c.directory(ctx, r.TenantID)
	if err != nil {
		return nil, err
	}
	note, err := c.storedReceipt(ctx, r.Receipt)
	if err != nil {
		return nil, err
	}
	receipt, err := parseUnverified(note)
	if err != nil {
		return nil, err
	}
	var results Results
	if err := json.Unmarshal(r.Results, &results); err != nil {
		return nil, damagedRequest().WithCause(err)
	}
	destroyed := event.Micros(r.DestroyedAt)
	out := Certificate{
		Format: certificateFormat, RequestID: r.ID, TenantID: r.TenantID, Subject: r.Subject.String(), LegalEntities: dir.codes(r.Partitions),
		Basis: string(r.Basis), Outcome: "complete", RequestedBy: r.RequestedBy, RequestedAt: event.Micros(r.RequestedAt),
		ApprovedBy: r.ApprovedBy, ApprovedAt: event.Micros(r.ApprovedAt), DueOn: r.DueOn, Classes: describeClasses(r.Classes),
		Counts: CertificateCounts{Events: results.Events, Intents: results.Intents, Redacted: results.Redacted, Keys: len(receipt.Keys)},
		Times: CertificateTimes{
			Destroyed: destroyed, Undecrypted: destroyed.Add(maxEviction), Confirmed: event.Micros(r.EvictedAt),
			Backups: destroyed.Add(maxEpochAge), Irrevocable: destroyed.Add(maxEpochAge + c.KeyDeletion), Condition: rotationCondition,
		},
		Verification: results, Receipt: CertificateReceipt{Number: r.Receipt, SHA256: fmt.Sprintf("%x", noteHash(note))}, OutOfReach: outOfReach(results.Index != nil),
	}
	if c.RotatedByHand {
		out.Times.Backups, out.Times.Irrevocable, out.Times.Condition = time.Time{}, time.Time{}, noRotationCondition
	}
	if !isComplete(r) {
		out.Outcome = "partial"
	}
	for _, k := range receipt.Keys {
		out.Counts.Versions += len(k.Fingerprints)
	}
	return shredding.SignCertificate(certificateFormat, r.ID, out, func(text []byte) ([]byte, error) { return c.Notes.SignNote(ctx, text) })
}

// VerifyCertificate checks that a certificate is signed with one of the keys and that no
// byte was changed. It needs the verifier keys only: no database, key service or network.
//
//	erasure.certificate_malformed  Invalid: no certificate, or not encoded as it was issued
//	erasure.certificate_altered    Invalid: not the certificate that was signed
//	note.key_invalid, note.not_verified
func VerifyCertificate(document []byte, notes ports.NoteOpener, verifierKeys ...string) (Certificate, error) {
	var out Certificate
	err := shredding.OpenCertificate(document, certificateFormat, &out, func() event.ID { return out.RequestID },
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
	logs, inEach := describeLogs(c.LegalEntities)
	line("Subject", "%s of tenant %s, %s", c.Subject, c.TenantID, logs)
	line("Request", "%s, basis %s, %s", c.RequestID, c.Basis, c.Outcome)
	line("Requested", "by %s at %s", c.RequestedBy, c.RequestedAt.Format(time.RFC3339))
	line("Approved", "by %s at %s", c.ApprovedBy, c.ApprovedAt.Format(time.RFC3339))
	for _, class := range c.Classes {
		switch {
		case class.Erased:
			line("Class "+class.Class, "erased")
		case class.Until != nil:
			line("Class "+class.Class, "kept until %s (%s)", class.Until, class.Refused)
		default:
			line("Class "+class.Class, "kept (%s)", class.Refused)
		}
	}
	versions := "there had been none"
	if c.Counts.Versions > 0 {
		versions = countOf(int64(c.Counts.Versions), "version") + ", all that there were of the erased classes"
	}
	line("Keys destroyed", "%s (%s)", c.Times.Destroyed.Format(time.RFC3339), versions)
	line("Closed for ever", "%s: one per erased class %s, whether it existed or not", countOf(int64(c.Counts.Keys), "key"), inEach)
	line("No node decrypts from", "%s", c.Times.Undecrypted.Format(time.RFC3339))
	if !c.Times.Backups.IsZero() {
		line("Backups unreadable", "from %s at the latest", c.Times.Backups.Format(time.RFC3339))
		line("Irrevocable from", "%s at the latest", c.Times.Irrevocable.Format(time.RFC3339))
	}
	line("", "%s", c.Times.Condition)
	copies := "copies in read models read the same"
	if c.Verification.Copies != nil {
		copies = plural(*c.Verification.Copies, "copy", "copies") + " left in read models"
	}
	line("Verified", "%s: %s in %s and %s read [REDACTED], %s, %s",
		c.Verification.VerifiedAt.Format(time.RFC3339), countOf(c.Verification.Redacted, "value"), countOf(c.Verification.Events, "event"),
		countOf(c.Verification.Intents, "intent"), copies, countOf(int64(len(c.Verification.Late)), "late event"))
	if c.Verification.Index != nil {
		line("Searches", "%s by which the person is found", plural(*c.Verification.Index, "entry", "entries")+" left in the index")
	}
	line("Receipt", "%d, SHA-256 %s", c.Receipt.Number, c.Receipt.SHA256)
	for i, place := range c.OutOfReach {
		name := ""
		if i == 0 {
			name = "Not reached"
		}
		line(name, "%s", place)
	}
	return b.String()
}

// describeLogs names the logs that an erasure concerned by their codes. The administrative log is
// no legal entity.
func describeLogs(codes []string) (logs, inEach string) {
	entities := slices.DeleteFunc(slices.Clone(codes), func(code string) bool { return code == ports.AdministrativeCode })
	slices.Sort(entities)
	logs = "legal entities " + strings.Join(entities, ", ")
	switch {
	case len(entities) == len(codes):
		return logs, "and legal entity"
	case len(entities) == 0:
		return "the administrative log", "in the administrative log"
	default:
		return logs + " and the administrative log", "in each legal entity and in the administrative log"
	}
}

// countOf renders a number of things whose plural ends in s.
func countOf(n int64, thing string) string { return plural(n, thing, thing+"s") }

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
