package domain

import (
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// PairLine is a line of one side of an intercompany pair, in the pair's currency.
type PairLine struct {
	Account     string            `json:"account"`
	Side        Side              `json:"debit_credit"`
	Amount      money.Number      `json:"amount"`
	Description string            `json:"description,omitempty"`
	TaxCode     string            `json:"tax_code,omitempty"`
	Dimensions  map[string]string `json:"dimensions,omitempty"`
}

// IntercompanyInitiated is the data of gl.intercompany.initiated, in the legal entity that
// began the pair. The lines and dimensions are the counterparty's.
type IntercompanyInitiated struct {
	PairID       string            `json:"pair_id"`
	Counterparty string            `json:"counterparty"`
	PostingDate  event.Date        `json:"posting_date"`
	Description  string            `json:"description"`
	Currency     string            `json:"currency"`
	Amount       money.Number      `json:"amount"`
	JournalID    string            `json:"journal_id"`
	Dimensions   map[string]string `json:"dimensions,omitempty"`
	Lines        []PairLine        `json:"lines"`
}

// IntercompanyMirrored is the data of gl.intercompany.mirrored, in the counterparty.
type IntercompanyMirrored struct {
	PairID    string `json:"pair_id"`
	Initiator string `json:"initiator"`
	JournalID string `json:"journal_id"`
}

// IntercompanyRefused is the data of gl.intercompany.refused: first in the counterparty,
// which then mirrors the pair no more, then in the legal entity that began it.
type IntercompanyRefused struct {
	PairID string `json:"pair_id"`
	Reason string `json:"reason"`
}

// IntercompanyState is the state of the stream gl.intercompany/<pair> in one legal entity.
type IntercompanyState struct {
	Initiated     *IntercompanyInitiated // in the legal entity that began the pair
	InitiatedID   event.ID
	Partition     event.PartitionID
	CorrelationID string
	Mirrored      bool
	Refused       bool
}

// Clone copies the state. The initiated pair never changes, so clones share it.
func (s *IntercompanyState) Clone() *IntercompanyState { c := *s; return &c }

// Apply folds an event.
func (s *IntercompanyState) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case EventIntercompanyInitiated:
		var i IntercompanyInitiated
		if err := json.Unmarshal(data, &i); err != nil {
			return fmt.Errorf("intercompany pair: %w", err)
		}
		s.Initiated, s.InitiatedID, s.Partition, s.CorrelationID = &i, e.ID, e.Partition, e.CorrelationID
	case EventIntercompanyMirrored:
		s.Mirrored = true
	case EventIntercompanyRefused:
		s.Refused = true
	}
	return nil
}

// Name says what happened to the pair in this legal entity.
func (s *IntercompanyState) Name() string {
	switch {
	case s.Refused:
		return "refused"
	case s.Mirrored:
		return "mirrored"
	case s.Initiated != nil:
		return "initiated"
	default:
		return "unknown"
	}
}
