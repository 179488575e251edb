package query

import (
	"encoding/json"
	"sort"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
)

// pin is what the pages of one report share.
type pin struct {
	partition event.PartitionID
	known     event.Sequence
	knownAt   string
	asOf      event.Date
	params    string
	version   int // of the projection; 0: of a cursor from before there were several
	// generation of the rows of that version.
	generation uint64
}

type pinText struct {
	Partition event.PartitionID `json:"p"`
	Known     event.Sequence    `json:"k"`
	KnownAt   string            `json:"t"`
	AsOf      event.Date        `json:"a"`
	Params    string            `json:"q"`
	Rest      string            `json:"r"`
	Version   int               `json:"v,omitempty"`

	Generation uint64 `json:"g,omitempty"`
}

// with joins the pin and the source's own cursor.
func (p pin) with(rest string) string {
	b, err := json.Marshal(pinText{p.partition, p.known, p.knownAt, p.asOf, p.params, rest, p.version, p.generation})
	if err != nil {
		return ""
	}
	return string(b)
}

func cutPin(text string) (pin, string, bool) {
	var t pinText
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return pin{}, "", false
	}
	return pin{t.Partition, t.Known, t.KnownAt, t.AsOf, t.Params, t.Version, t.Generation}, t.Rest, true
}

func paramsKey(params map[string]string) string {
	out := make([]string, 0, len(params))
	for k, v := range params {
		out = append(out, strconv.Quote(k)+"="+strconv.Quote(v))
	}
	sort.Strings(out)
	return strings.Join(out, ",")
}
