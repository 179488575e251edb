package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Metadata is a stream's own document. What is absent limits nothing.
type Metadata struct {
	MaxAgeSeconds int64           `json:"max_age_seconds,omitzero"` // events recorded earlier are not shown
	MaxCount      int64           `json:"max_count,omitzero"`       // only so many of the newest events are shown
	CacheControl  string          `json:"cache_control,omitzero"`   // directives of RFC 9111 for those who read the stream
	ACL           *ACL            `json:"acl,omitzero"`
	Custom        json.RawMessage `json:"custom,omitzero"` // a JSON object of the writers' own
}

// ACL says which roles may do what with the stream, among those that the access
// policy lets do it at all. A list that is nil restricts nothing; an empty one lets
// in administrators and auditors only.
type ACL struct {
	Read     []string `json:"read,omitzero"`
	Write    []string `json:"write,omitzero"`
	Delete   []string `json:"delete,omitzero"`
	Metadata []string `json:"metadata,omitzero"`
}

// Limits of metadata.
const (
	maxAge          = 100 * 366 * 24 * 60 * 60 // seconds
	maxCount        = 1_000_000_000
	maxCacheControl = 200
	maxRoles        = 32
	maxCustom       = 16 << 10
)

// CodeMetadataInvalid refuses a metadata document.
const CodeMetadataInvalid = "stream.metadata_invalid"

func invalid(pointer, detail string) *fault.Error {
	return (&fault.Error{Kind: fault.Invalid, Code: CodeMetadataInvalid, Detail: detail}).WithField(pointer)
}

// ParseMetadata reads a metadata document. A member that is null is the same as absent. Fault
// stream.metadata_invalid with the pointer of the member.
func ParseMetadata(raw []byte) (Metadata, error) {
	var d struct {
		MaxAgeSeconds *int64          `json:"max_age_seconds"`
		MaxCount      *int64          `json:"max_count"`
		CacheControl  *string         `json:"cache_control"`
		ACL           *ACL            `json:"acl"`
		Custom        json.RawMessage `json:"custom"`
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&d)
	if err != nil || !bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) { // null would lift every limit
		return Metadata{}, invalid("", "metadata is an object of max_age_seconds, max_count (whole numbers), cache_control (text), acl (lists of roles) and custom (object); correct it").WithCause(err)
	}
	m := Metadata{ACL: d.ACL}
	if d.MaxAgeSeconds != nil {
		if m.MaxAgeSeconds = *d.MaxAgeSeconds; m.MaxAgeSeconds < 1 || m.MaxAgeSeconds > maxAge {
			return m, invalid("/max_age_seconds", fmt.Sprintf("the age is 1 to %d seconds; leave it out for no limit", maxAge))
		}
	}
	if d.MaxCount != nil {
		if m.MaxCount = *d.MaxCount; m.MaxCount < 1 || m.MaxCount > maxCount {
			return m, invalid("/max_count", fmt.Sprintf("the count is 1 to %d; leave it out for no limit", maxCount))
		}
	}
	if d.CacheControl != nil {
		m.CacheControl = *d.CacheControl
		if m.CacheControl != "" && !validCacheControl(m.CacheControl) {
			return m, invalid("/cache_control",
				"write directives such as max-age=60, must-revalidate: private, no-cache, no-store, no-transform, must-revalidate, immutable, max-age, stale-while-revalidate and stale-if-error are possible, each once; correct it")
		}
	}
	if d.ACL != nil {
		m.ACL = nil
		for pointer, roles := range d.ACL.Roles() {
			if roles != nil {
				m.ACL = d.ACL
			}
			if err := checkRoles(pointer, roles); err != nil {
				return m, err
			}
		}
	}
	if len(d.Custom) > 0 && string(d.Custom) != "null" {
		var compact bytes.Buffer
		if err := json.Compact(&compact, d.Custom); err != nil || d.Custom[0] != '{' {
			return m, invalid("/custom", "custom is a JSON object; send one")
		}
		if compact.Len() > maxCustom {
			return m, fault.New(fault.TooLarge, "stream.metadata_too_large", "custom may have %d bytes; keep the bulk elsewhere and refer to it", maxCustom).
				WithNumbers(maxCustom, compact.Len()).WithField("/custom")
		}
		m.Custom = compact.Bytes()
	}
	return m, nil
}

var roleName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

func checkRoles(pointer string, roles []string) error {
	if len(roles) > maxRoles {
		return invalid(pointer, fmt.Sprintf("a list has at most %d roles; shorten it", maxRoles))
	}
	for i, r := range roles {
		if !roleName.MatchString(r) || slices.Contains(roles[:i], r) {
			return invalid(pointer+"/"+strconv.Itoa(i), "a role is written like ap_clerk and named once; correct it")
		}
	}
	return nil
}

var cacheDirective = regexp.MustCompile(`^(?:(private|no-cache|no-store|no-transform|must-revalidate|immutable)|(max-age|stale-while-revalidate|stale-if-error)=[0-9]{1,9})$`)

// validCacheControl takes what is of use to a client and nothing that would let a
// cache shared between people keep an answer.
func validCacheControl(text string) bool {
	if len(text) > maxCacheControl {
		return false
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.Trim(part, " ")
		m := cacheDirective.FindStringSubmatch(part)
		if m == nil || seen[m[1]+m[2]] {
			return false
		}
		seen[m[1]+m[2]] = true
	}
	return true
}

// CacheHeader is the value of the Cache-Control header of an answer, "" if the
// metadata say nothing. Answers are for one caller, so it always says private or
// no-store. What would not have passed ParseMetadata never gets into it.
func (m Metadata) CacheHeader() string {
	if m.CacheControl == "" || !validCacheControl(m.CacheControl) {
		return ""
	}
	var parts []string
	private := false
	for part := range strings.SplitSeq(m.CacheControl, ",") {
		part = strings.Trim(part, " ")
		private = private || part == "private" || part == "no-store"
		parts = append(parts, part)
	}
	if !private {
		parts = append([]string{"private"}, parts...)
	}
	return strings.Join(parts, ", ")
}

// Since is the moment before which events are too old to be shown; the zero time
// when no age is too old.
func (m Metadata) Since(now time.Time) time.Time {
	if m.MaxAgeSeconds == 0 {
		return time.Time{}
	}
	return now.Add(-time.Duration(m.MaxAgeSeconds) * time.Second)
}

// Floor is the first version that the count leaves of a stream.
func (m Metadata) Floor(current event.Version) event.Version {
	if m.MaxCount > 0 && current > event.Version(m.MaxCount) {
		return current - event.Version(m.MaxCount) + 1
	}
	return 1
}

// Settings encodes what the log obeys, everything but Custom, and the access list
// out of it; nil when there is none.
func (m Metadata) Settings() (settings, access json.RawMessage, err error) {
	m.Custom = nil
	if m.ACL != nil {
		if access, err = json.Marshal(m.ACL); err != nil {
			return nil, nil, err
		}
	}
	if settings, err = json.Marshal(m); err != nil || string(settings) == "{}" {
		return nil, nil, err
	}
	return settings, access, nil
}

// ParseSettings reads what Settings wrote.
func ParseSettings(raw []byte) (m Metadata, err error) {
	if len(raw) == 0 {
		return m, nil
	}
	if err = json.Unmarshal(raw, &m); err != nil {
		return m, fault.New(fault.Internal, "stream.settings_unreadable", "what is stored of the stream's metadata cannot be read; set the metadata again").WithCause(err)
	}
	return m, nil
}
