package verify

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Heads holds the last link of every chain at a time. Stored outside the database, it
// reveals damage that a chain cannot reveal by itself: that its tail was cut off, that the
// database was restored to an earlier state, or that all checksums were recomputed.
type Heads struct {
	LogName    string         `json:"log_name"`
	Time       time.Time      `json:"time"`
	Partitions []Head         `json:"partitions"`
	Registry   *RegistryHead  `json:"registry,omitempty"`   // the shared one; nil where only export files were read
	Registries []RegistryHead `json:"registries,omitempty"` // of the tenants
}

// Head is the last link of one chain.
type Head struct {
	Tenant      string            `json:"tenant"`
	LegalEntity string            `json:"legal_entity"`
	Partition   event.PartitionID `json:"partition_id"`
	Sequence    event.Sequence    `json:"sequence"`
	Checksum    string            `json:"checksum"` // hexadecimal; of the genesis for sequence 0
}

// HeadsOf returns the heads of reports, which should be sound.
func HeadsOf(logName string, at time.Time, reports []EntityReport, registries []RegistryReport) Heads {
	h := Heads{LogName: logName, Time: at.UTC(), Partitions: make([]Head, len(reports))}
	for i, r := range reports {
		h.Partitions[i] = Head{r.Tenant, r.LegalEntity, r.Partition, r.Head, r.Checksum}
		if r.Head == 0 {
			genesis := event.GenesisChecksum(logName, r.Partition)
			h.Partitions[i].Checksum = hex.EncodeToString(genesis[:])
		}
	}
	for _, r := range registries {
		head := RegistryHead{r.Tenant, r.Head, r.Checksum}
		switch {
		case r.Head == 0:
		case r.Tenant == "":
			h.Registry = &head
		default:
			h.Registries = append(h.Registries, head)
		}
	}
	return h
}

// Encode returns the file's text.
func (h Heads) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(h, "", "  ")
	return append(text, '\n'), err
}

// ParseHeads parses the file's text. Fault verify.heads_invalid.
func ParseHeads(text []byte) (Heads, error) {
	var h Heads
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	bad := d.Decode(&h) != nil || h.LogName == "" || len(h.Partitions) == 0
	if _, err := d.Token(); err != io.EOF {
		bad = true
	}
	for i, p := range h.Partitions {
		checksum, err := hex.DecodeString(p.Checksum)
		bad = bad || err != nil || len(checksum) != len(event.Hash{}) || p.Partition == 0 || p.LegalEntity == "" ||
			slices.ContainsFunc(h.Partitions[:i], func(o Head) bool { return o.Partition == p.Partition })
	}
	registries := h.allRegistries()
	for i, r := range registries {
		checksum, err := hex.DecodeString(r.Checksum)
		bad = bad || err != nil || len(checksum) != len(event.Hash{}) || r.Change < 1 ||
			slices.ContainsFunc(registries[:i], func(o RegistryHead) bool { return o.Tenant == r.Tenant })
	}
	if bad {
		return Heads{}, fault.New(fault.Invalid, "verify.heads_invalid", "this is not a file of heads as `backbone verify --export-head` writes it; use the original file")
	}
	return h, nil
}

// reference holds the heads of an earlier export. nil: there are none.
type reference struct {
	logName    string
	heads      []Head
	registries []RegistryHead // the exported ones
}

func newReference(h Heads) *reference { return &reference{h.LogName, h.Partitions, h.allRegistries()} }

// allRegistries has the heads of the shared registry and of those of the tenants.
func (h *Heads) allRegistries() []RegistryHead {
	if h.Registry == nil {
		return h.Registries
	}
	return append([]RegistryHead{*h.Registry}, h.Registries...)
}

func (r *reference) of(p event.PartitionID) *Head {
	for i := range r.heads {
		if r.heads[i].Partition == p {
			return &r.heads[i]
		}
	}
	return nil
}

// hasHeadOf reports whether a head of a legal entity with this code was exported.
func (r *reference) hasHeadOf(code string) bool {
	return r != nil && slices.ContainsFunc(r.heads, func(h Head) bool { return h.LegalEntity == code })
}

// missingEntities reports the selected legal entities that have a head and do not exist.
func (r *reference) missingEntities(existing []ports.LegalEntity, tenantID string, codes []string) []EntityReport {
	var out []EntityReport
	if r == nil {
		return out
	}
	for _, h := range r.heads {
		chosen := (tenantID == "" || tenantID == h.Tenant) && (len(codes) == 0 || slices.Contains(codes, h.LegalEntity))
		if !chosen || slices.ContainsFunc(existing, func(le ports.LegalEntity) bool {
			return le.Partition == h.Partition && le.TenantID == h.Tenant && le.Code == h.LegalEntity
		}) {
			continue
		}
		report := newReport(ports.LegalEntity{TenantID: h.Tenant, Code: h.LegalEntity, Partition: h.Partition})
		report.Reference = &h.Sequence
		report.add(Finding{Kind: LegalEntityMissing, Sequence: h.Sequence, Detail: "heads of this legal entity were exported earlier, but the log has no legal entity of this tenant, code and partition"})
		out = append(out, report)
	}
	return out
}
