package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// Rate types.
const (
	RateSpot    = "spot"
	RateClosing = "closing"
)

// ExchangeRate is a rate as gl.exchange_rate.set carries it.
type ExchangeRate struct {
	From     string       `json:"from"`
	To       string       `json:"to"`
	RateType string       `json:"rate_type"`
	Date     event.Date   `json:"date"`
	Rate     money.Number `json:"rate"` // units of To per 1 From
	Reason   string       `json:"reason,omitempty"`
}

// DatedRate is the rate of a day.
type DatedRate struct {
	Date event.Date   `json:"date"`
	Rate money.Number `json:"rate"`
}

// RateHistory is the state of a currency pair's stream: the rates by type and date. If a
// day's rate is set again, the later one replaces it.
type RateHistory struct {
	spot    []DatedRate
	closing []DatedRate
}

// storedRates is the encoded form of a RateHistory.
type storedRates struct {
	Spot    []DatedRate `json:"spot"`
	Closing []DatedRate `json:"closing"`
}

// MarshalJSON encodes the history for module.JSONCodec.
func (h *RateHistory) MarshalJSON() ([]byte, error) {
	return json.Marshal(storedRates{h.spot, h.closing})
}

// UnmarshalJSON decodes the form of MarshalJSON.
func (h *RateHistory) UnmarshalJSON(b []byte) error {
	var s storedRates
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	h.spot, h.closing = s.Spot, s.Closing
	return nil
}

// Clone copies the history, with room for one more rate.
func (h *RateHistory) Clone() *RateHistory {
	return &RateHistory{spot: cloneRates(h.spot), closing: cloneRates(h.closing)}
}

func cloneRates(in []DatedRate) []DatedRate {
	return append(make([]DatedRate, 0, len(in)+1), in...)
}

// Apply folds an event.
func (h *RateHistory) Apply(e event.Recorded, data []byte) error {
	if e.Type != EventExchangeRateSet {
		return nil
	}
	var r ExchangeRate
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("exchange rate: %w", err)
	}
	list := h.list(r.RateType)
	i := sort.Search(len(*list), func(i int) bool { return (*list)[i].Date >= r.Date })
	dated := DatedRate{Date: r.Date, Rate: r.Rate}
	if i < len(*list) && (*list)[i].Date == r.Date {
		(*list)[i] = dated
		return nil
	}
	*list = slices.Insert(*list, i, dated)
	return nil
}

func (h *RateHistory) list(rateType string) *[]DatedRate {
	if rateType == RateClosing {
		return &h.closing
	}
	return &h.spot
}

// Latest returns the last rate on or before the day.
func (h *RateHistory) Latest(rateType string, d event.Date) (DatedRate, bool) {
	list := *h.list(rateType)
	i := sort.Search(len(list), func(i int) bool { return list[i].Date > d })
	if i == 0 {
		return DatedRate{}, false
	}
	return list[i-1], true
}

// On returns the rate of exactly the day.
func (h *RateHistory) On(rateType string, d event.Date) (DatedRate, bool) {
	r, ok := h.Latest(rateType, d)
	return r, ok && r.Date == d
}
