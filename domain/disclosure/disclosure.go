// Package disclosure describes the record of reads that matter: which personal data was read by
// whom, what was exported, what was verified.
package disclosure

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Kind says what was read.
type Kind string

// The kinds of reads.
const (
	PersonalData Kind = "personal_data" // personal values, in clear
	Export       Kind = "export"        // events, as a file
	Report       Kind = "report"        // all that is stored about a person
	// PersonalSearch is a search for persons by name or address; the text is not recorded.
	PersonalSearch Kind = "personal_search"
)

// Kinds lists the kinds.
func Kinds() []Kind { return []Kind{PersonalData, Export, Report, PersonalSearch} }

// Valid reports whether there is such a kind.
func (k Kind) Valid() bool { return slices.Contains(Kinds(), k) }

// MaxReason is the length of a reason in bytes.
const MaxReason = 500

// MinRetention is how long an access is kept at least: the store deletes no younger one.
const MinRetention = 7 * 24 * time.Hour

// Access is one read. It holds no personal values; Subject is a pseudonym and outlives the
// erasure of the person, like the event that announces it.
type Access struct {
	ID          event.ID
	At          time.Time // of the store
	PersonID    string    // who read
	PrincipalID string    // the login
	Kind        Kind
	Operation   string            // of the API, such as getEvent
	LegalEntity string            // code; "": several
	Subject     shredding.Subject // whose data; "" where the kind has none
	Class       shredding.Class   // "" where the kind has none
	Values      int               // of the person and class that were opened together
	Reason      string            // as the reader gave it; ""
	RequestID   string            // of the request, as in the server's log
	GrantID     event.ID          // by which an auditor read; zero for other reads
}

// Purpose says for what something is read.
type Purpose struct {
	Operation string // of the API, such as getEvent
	Reason    string // as the reader gave it; ""
	RequestID string
	Subject   shredding.Subject // whose report is made; "": no report
}

// digestDomain separates these hashes from the other formats.
const digestDomain = "backbone/access/v1"

// Digest hashes accesses in their order, by time and id: SHA-256(L(domain) ‖ L(field)…), the
// fields of each in the order of Access, the last only if it is set, L(x) the length of x in 4 bytes followed by x.
type Digest struct {
	Count int
	sum   hash.Hash
}

// NewDigest begins a digest.
func NewDigest() *Digest {
	d := &Digest{sum: sha256.New()}
	d.text(digestDomain)
	return d
}

// Add adds the next access.
func (d *Digest) Add(a *Access) {
	d.Count++
	for _, field := range []string{
		string(a.ID[:]), strconv.FormatInt(a.At.UnixMicro(), 10), a.PersonID, a.PrincipalID, string(a.Kind), a.Operation, a.LegalEntity,
		string(a.Subject), string(a.Class), strconv.Itoa(a.Values), a.Reason, a.RequestID,
	} {
		d.text(field)
	}
	if !a.GrantID.IsZero() {
		d.text(grantField + string(a.GrantID[:]))
	}
}

// grantField begins the field of a grant, which only an access by one has: accesses that were hashed
// before there was the field have the same digest. No other field of 22 bytes follows a request id, since the
// next access begins with its id of 16.
const grantField = "grant:"

// Sum returns the hash of what was added.
func (d *Digest) Sum() event.Hash { return event.Hash(d.sum.Sum(nil)) }

func (d *Digest) text(s string) {
	var n [4]byte
	binary.BigEndian.PutUint32(n[:], uint32(len(s)))
	d.sum.Write(n[:])
	d.sum.Write([]byte(s))
}

// AccessRecorded is the type of the events that bind accesses to the chain: a Period each.
const AccessRecorded = "backbone.access.recorded"

// AccessStream is the stream of these events in an administrative log.
var AccessStream = event.StreamID{Type: "backbone.access", ID: "log"}

// Period is the data of AccessRecorded: the accesses of a period of whole hours. A period
// begins where the one before ended, the first at the Unix epoch.
type Period struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"` // not included
	Accesses int       `json:"accesses"`
	SHA256   string    `json:"sha256"` // Digest.Sum in hex
	// DeletedThrough is the version of the newest event whose accesses, like those of the
	// events before it, are older than the retention and are deleted; 0: none are.
	DeletedThrough event.Version `json:"deleted_through"`
}
