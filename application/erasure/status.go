package erasure

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Status is a request as an officer sees it. Times in the future are zero.
type Status struct {
	ID            event.ID
	Subject       string
	LegalEntities []string // codes, by partition
	Basis         string
	Reason        string
	State         string // of shredding.ErasureState
	Preview       Preview
	Scope         string // of the preview, to which an approval is bound, in hex; "" before the preview
	RequestedBy   string // person id
	RequestedAt   time.Time
	DueOn         event.Date
	DaysLeft      int // until DueOn, negative after it; 0 once the request has ended
	ApprovedBy    string
	ApprovedAt    time.Time
	Classes       []Class
	Steps         []Step
	DestroyedAt   time.Time
	CompletedAt   time.Time
	EndedBy       string // who rejected or withdrew it
	EndReason     string // why it was rejected, withdrawn, refused or expired
	Replayed      bool   `json:"-"` // the idempotency key was known: the earlier request with its present state
}

// Class is the decision about one key class, which is a retention class of types.
type Class struct {
	Class   string      `json:"class"`
	Erased  bool        `json:"erased"`
	Refused string      `json:"refused,omitempty"` // "legal_hold" or "retention"
	Until   *event.Date `json:"until,omitempty"`   // when the refusal ends; nil: not known
}

// Step is one state on the path to completed, done or not.
type Step struct {
	State     string
	Done      bool
	At        time.Time // zero if it is not done or its time is not stored
	Attempts  int       // failed ones, of the next step
	LastError string    // code of the last failure
}

// Preview counts what an erasure concerns. It holds no values.
type Preview struct {
	Events        int64       `json:"events"`
	Intents       int64       `json:"intents"`
	Types         []TypeCount `json:"types"`
	LegalEntities []string    `json:"legal_entities"`
	Projections   []string    `json:"projections"` // that hold copies
	Holds         []Hold      `json:"holds"`
	Retained      []Retained  `json:"retained"`
	Classes       []Class     `json:"classes"`
	CountedAt     time.Time   `json:"counted_at"`
}

// TypeCount counts the records of a type in a legal entity.
type TypeCount struct {
	Type        string `json:"type"`
	LegalEntity string `json:"legal_entity"`
	Intent      bool   `json:"intent,omitempty"` // the type is an intent's
	Events      int64  `json:"events"`           // records
	Fields      int64  `json:"fields"`
}

// Retained is a key class that must still be kept.
type Retained struct {
	Class string     `json:"class"`
	Until event.Date `json:"until"`
}

// Hold is a legal hold.
type Hold struct {
	ID          event.ID    `json:"id"`
	Subject     string      `json:"subject"`
	LegalEntity string      `json:"legal_entity,omitempty"` // "": all of the tenant
	Reason      string      `json:"reason"`
	PlacedBy    string      `json:"placed_by"`
	PlacedAt    time.Time   `json:"placed_at"`
	Until       *event.Date `json:"until,omitempty"` // nil: until it is released
	ReleasedBy  string      `json:"released_by,omitempty"`
	ReleasedAt  time.Time   `json:"released_at,omitzero"`
}

// directory knows the legal entities of a tenant by partition and by code.
type directory struct {
	byPartition map[event.PartitionID]ports.LegalEntity
	byCode      map[string]ports.LegalEntity
	all         []event.PartitionID // ascending
}

func newDirectory(entities []ports.LegalEntity) directory {
	d := directory{byPartition: map[event.PartitionID]ports.LegalEntity{}, byCode: map[string]ports.LegalEntity{}}
	for _, le := range entities {
		d.byPartition[le.Partition], d.byCode[le.Code] = le, le
		d.all = append(d.all, le.Partition)
	}
	slices.Sort(d.all)
	return d
}

func (d directory) codes(partitions []event.PartitionID) []string {
	out := make([]string, 0, len(partitions))
	for _, p := range partitions {
		out = append(out, d.byPartition[p].Code)
	}
	return out
}

// sees reports whether a caller may see all of the partitions.
func (d directory) sees(p ports.Principal, partitions []event.PartitionID) bool {
	if len(p.LegalEntities) == 0 {
		return true
	}
	return !slices.ContainsFunc(d.codes(partitions), func(code string) bool { return !slices.Contains(p.LegalEntities, code) })
}

func (d directory) hold(h ports.LegalHold) Hold {
	return Hold{
		ID: h.ID, Subject: h.Subject.String(), LegalEntity: d.byPartition[h.Partition].Code, Reason: h.Reason,
		PlacedBy: h.PlacedBy, PlacedAt: h.PlacedAt, Until: h.Until, ReleasedBy: h.ReleasedBy, ReleasedAt: h.ReleasedAt,
	}
}

func (d directory) status(r ports.ErasureRequest, today event.Date) (Status, error) {
	s := Status{
		ID: r.ID, Subject: r.Subject.String(), LegalEntities: d.codes(r.Partitions), Basis: string(r.Basis), Reason: r.Reason,
		State: string(r.State), RequestedBy: r.RequestedBy, RequestedAt: r.RequestedAt, DueOn: r.DueOn, Scope: scopeText(r),
		ApprovedBy: r.ApprovedBy, ApprovedAt: r.ApprovedAt, Classes: describeClasses(r.Classes), Steps: steps(r, nil),
		DestroyedAt: r.DestroyedAt, CompletedAt: r.CompletedAt, EndedBy: r.EndedBy, EndReason: r.EndReason,
	}
	if !r.State.Final() {
		s.DaysLeft = int(r.DueOn - today)
	}
	var err error
	s.Preview, err = readPreview(r)
	if len(s.Classes) == 0 {
		s.Classes = s.Preview.Classes
	}
	return s, err
}

// scopeText returns the digest of a request's previewed scope, "" before the preview.
func scopeText(r ports.ErasureRequest) string {
	if r.Scope == (event.Hash{}) {
		return ""
	}
	return hex.EncodeToString(r.Scope[:])
}

func readPreview(r ports.ErasureRequest) (Preview, error) {
	var p Preview
	if len(r.Preview) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(r.Preview, &p); err != nil {
		return Preview{}, damagedRequest().WithCause(err)
	}
	return p, nil
}

func damagedRequest() *fault.Error {
	return fault.New(fault.Internal, "erasure.damaged", "the stored request cannot be read; compare the register with its backup")
}

func describeClasses(classes []ports.ErasureClass) []Class {
	out := make([]Class, 0, len(classes))
	for _, c := range classes {
		out = append(out, Class{Class: c.Class.String(), Erased: c.Erased, Refused: c.Refused, Until: c.Until})
	}
	return out
}

// steps lists the states on the path to completed with their stored times: those of the
// request, and of the journal if the caller has read it.
func steps(r ports.ErasureRequest, journal []ports.ErasureStep) []Step {
	at := map[shredding.ErasureState]time.Time{}
	for _, s := range journal {
		at[s.State] = s.At // of a state reached twice, the last time
	}
	for state, known := range map[shredding.ErasureState]time.Time{
		shredding.ErasureRequested: r.RequestedAt, shredding.ErasureApproved: r.ApprovedAt, shredding.ErasureDestroyed: r.DestroyedAt,
		shredding.ErasureEvicted: r.EvictedAt, shredding.ErasureCompleted: r.CompletedAt,
	} {
		if !known.IsZero() {
			at[state] = known
		}
	}
	path := shredding.ErasurePath()
	reached := slices.Index(path, r.State)
	if reached < 0 { // the request left the path, such as by a refusal
		reached = lastPathState(path, at, journal)
	}
	out := make([]Step, len(path))
	for i, state := range path {
		out[i] = Step{State: string(state), Done: i <= reached}
		if out[i].Done {
			out[i].At = at[state]
		} else if i == reached+1 && !r.State.Final() {
			out[i].Attempts, out[i].LastError = r.Attempts, r.LastError
		}
	}
	return out
}

// lastPathState returns the index of the state from which a request left the path.
func lastPathState(path []shredding.ErasureState, at map[shredding.ErasureState]time.Time, journal []ports.ErasureStep) int {
	for _, s := range slices.Backward(journal) {
		if i := slices.Index(path, s.State); i >= 0 {
			return i
		}
	}
	last := 0
	for i, state := range path {
		if !at[state].IsZero() {
			last = i
		}
	}
	return last
}
