package jsonschema

import "github.com/xeipuuv/gojsonschema"

// The library's formats and texts are process-wide. They are replaced once,
// before any schema is compiled; nothing else in the program uses the library.
func init() {
	gojsonschema.FormatCheckers.Add("date", dateFormat{}).Add("date-time", dateTimeFormat{})
	gojsonschema.Locale = mute{}
}

// dateFormat is an ISO 8601 calendar day, YYYY-MM-DD, in the years 0001 to 9999.
type dateFormat struct{}

// IsFormat implements gojsonschema.FormatChecker. Like the library's own formats
// it fails for a number.
func (dateFormat) IsFormat(input any) bool {
	s, ok := input.(string)
	return ok && isDate(s)
}

func isDate[T string | []byte](s T) bool {
	if len(s) != 10 || s[4] != '-' || s[7] != '-' {
		return false
	}
	year, month, day := digits(s[0:4]), digits(s[5:7]), digits(s[8:10])
	if year < 1 || month < 1 || month > 12 || day < 1 {
		return false
	}
	return day <= daysIn(year, month)
}

// digits reads decimal digits; -1 if there is anything else.
func digits[T string | []byte](s T) int {
	n := 0
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

func daysIn(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	default:
		return 31
	}
}

// dateTimeFormat is RFC 3339, date and time with an offset. The library's own
// also takes a bare date or a bare time.
type dateTimeFormat struct{}

// IsFormat implements gojsonschema.FormatChecker.
func (dateTimeFormat) IsFormat(input any) bool {
	s, ok := input.(string)
	return ok && isDateTime(s)
}

// isDateTime is written out because time.Parse takes hours of one digit and
// commas, too.
func isDateTime[T string | []byte](s T) bool {
	if len(s) < len("2006-01-02T15:04:05Z") || !isDate(s[:10]) || s[10] != 'T' || !isTime(s[11:19]) {
		return false
	}
	rest := s[19:]
	if rest[0] == '.' {
		n := 1
		for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
			n++
		}
		if n == 1 || n > 10 {
			return false
		}
		rest = rest[n:]
	}
	switch {
	case len(rest) == 1:
		return rest[0] == 'Z'
	case len(rest) == 6 && (rest[0] == '+' || rest[0] == '-') && rest[3] == ':':
		hours, minutes := digits(rest[1:3]), digits(rest[4:6])
		return hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60
	default:
		return false
	}
}

// isTime is hh:mm:ss without leap seconds, which no clock here can hold.
func isTime[T string | []byte](s T) bool {
	if s[2] != ':' || s[5] != ':' {
		return false
	}
	hours, minutes, seconds := digits(s[0:2]), digits(s[3:5]), digits(s[6:8])
	return hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60 && seconds >= 0 && seconds < 60
}

// mute replaces every text of the library that could quote a value or a name, so
// that no caller can print one. It also saves the rendering.
type mute struct{ gojsonschema.DefaultLocale }

const muted = "The value is not valid."

func (mute) False() string                        { return muted }
func (mute) Required() string                     { return muted }
func (mute) NumberAnyOf() string                  { return muted }
func (mute) NumberOneOf() string                  { return muted }
func (mute) NumberAllOf() string                  { return muted }
func (mute) NumberNot() string                    { return muted }
func (mute) MissingDependency() string            { return muted }
func (mute) Internal() string                     { return muted }
func (mute) Const() string                        { return muted }
func (mute) Enum() string                         { return muted }
func (mute) ArrayNoAdditionalItems() string       { return muted }
func (mute) ArrayMinItems() string                { return muted }
func (mute) ArrayMaxItems() string                { return muted }
func (mute) Unique() string                       { return muted }
func (mute) ArrayContains() string                { return muted }
func (mute) ArrayMinProperties() string           { return muted }
func (mute) ArrayMaxProperties() string           { return muted }
func (mute) AdditionalPropertyNotAllowed() string { return muted }
func (mute) InvalidPropertyPattern() string       { return muted }
func (mute) InvalidPropertyName() string          { return muted }
func (mute) StringGTE() string                    { return muted }
func (mute) StringLTE() string                    { return muted }
func (mute) DoesNotMatchPattern() string          { return muted }
func (mute) DoesNotMatchFormat() string           { return muted }
func (mute) MultipleOf() string                   { return muted }
func (mute) NumberGTE() string                    { return muted }
func (mute) NumberGT() string                     { return muted }
func (mute) NumberLTE() string                    { return muted }
func (mute) NumberLT() string                     { return muted }
func (mute) ConditionThen() string                { return muted }
func (mute) ConditionElse() string                { return muted }
