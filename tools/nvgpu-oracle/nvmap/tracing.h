/* nvmap's trace points: nobody listens. */
#define TP_PROTO(...) __VA_ARGS__
#define TRACE_EVENT(name, prototype, ...) \
	static inline void trace_##name(prototype) {} \
	static inline bool trace_##name##_enabled(void) { return false; }
#define DEFINE_EVENT(class, name, prototype, ...) \
	static inline void trace_##name(prototype) {} \
	static inline bool trace_##name##_enabled(void) { return false; }
#define DECLARE_EVENT_CLASS(...)
