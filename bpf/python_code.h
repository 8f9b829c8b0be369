/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Sending of Python frames and code objects: a code object is sent once, before the
 * first stack that refers to it. User space cannot read it later, because it may have
 * been freed. */
#pragma once

/* Bits of the state of a str, above the shift. */
#define GP_PYTHON_KIND 7
#define GP_PYTHON_IS_ASCII 16

/* Reads the str at user address `at` into `characters`, a buffer of `room` bytes (a
 * power of two): its end if requested, else its beginning. */
static __always_inline void gp_python_read_text(const struct gp_python *python,
						struct gp_python_text *text, __u8 *characters,
						__u32 room, __u64 at, bool its_end)
{
	__u64 length = 0, data;
	__u32 state = 0, kind;

	text->bytes = 0;
	text->kind = 0;
	text->is_cut = 0;
	if (bpf_probe_read_user(&length, sizeof(length), (void *)(at + python->text_length)) ||
	    bpf_probe_read_user(&state, sizeof(state), (void *)(at + python->text_state)))
		return;
	state >>= python->text_kind_shift & 31;
	kind = state & GP_PYTHON_KIND;
	data = at + (state & GP_PYTHON_IS_ASCII ? python->text_ascii : python->text_wide);
	if ((kind != 1 && kind != 2 && kind != 4) || length > 1ULL << 40)
		return;
	length *= kind;
	if (length > room) {
		if (its_end)
			data += length - room;
		length = room;
		text->is_cut = 1;
	}
	barrier_var(length);
	if (length > room || bpf_probe_read_user(characters, length, (void *)data))
		return;
	text->bytes = length;
	text->kind = kind;
}

/* Fills in the code object at `at`, which was read, with as much of its line table, which has
 * `bytes` bytes at `table`, as fits into `room`. */
static __always_inline void gp_python_fill_code(const struct gp_python *python,
						struct gp_python_walk *walk,
						struct gp_python_code *code, __u64 at, __u8 *to,
						__u32 room, __u64 table, __u64 bytes)
{
	__u64 name = gp_python_word(walk->code, python->name - python->object_type);
	__u64 file = gp_python_word(walk->code, python->file - python->object_type);
	__u32 copied = bytes < room ? bytes : room;

	barrier_var(copied);
	if (copied > room || bpf_probe_read_user(to, copied, (void *)table))
		copied = 0;
	if (!copied && bytes)
		gp_count(python_unreadable);
	code->type = GP_RECORD_PYTHON_CODE;
	code->reserved = 0;
	code->reserved2 = 0;
	code->tgid = bpf_get_current_pid_tgid() >> 32;
	code->table_bytes = bytes > 0xffffffff ? 0xffffffff : bytes;
	code->table_copied = copied;
	code->first_line = gp_python_word(walk->code, python->first_line - python->object_type);
	code->first_traceable = 0;
	bpf_probe_read_user(&code->first_traceable, sizeof(code->first_traceable),
			    (void *)(at + python->first_traceable));
	gp_python_read_text(python, &code->name_text, code->name, sizeof(code->name), name, false);
	gp_python_read_text(python, &code->file_text, code->file, sizeof(code->file), file, true);
	if (!code->name_text.kind || !code->file_text.kind)
		gp_count(python_unreadable);
}

GP_LONG_RECORD(gp_python_code_small, gp_python_code, code, table, GP_SMALL_TABLE_BYTES);
GP_LONG_RECORD(gp_python_code_large, gp_python_code, code, table, GP_MAX_TABLE_BYTES);

#define gp_send_code_of(record_type)                                                               \
	({                                                                                         \
		struct record_type *record = gp_reserve(                                           \
			stack_ring, GP_RING_STACKS, struct record_type, gp_unread(stack_ring));    \
		if (record) {                                                                      \
			record->code.process = process;                                            \
			record->code.id = id;                                                      \
			gp_python_fill_code(python, walk, &record->code, at, record->table,        \
					    sizeof(record->table), table, bytes);                  \
			bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);                              \
		}                                                                                  \
		record != NULL;                                                                    \
	})

/* Sends the code object of the frame at `index`, unless it was sent. False if the ring
 * is full. */
__noinline __u32 gp_send_python_code(struct gp_python *python, struct gp_python_walk *walk,
				     __u32 process, __u32 index)
{
	__u64 at, id, sent, table, bytes = 0;
	__u32 one = 1;
	bool is_sent;

	/* Without Python frames the map does not exist. */
	if (!take_python || !python || !walk || index >= GP_PYTHON_DEPTH)
		return 0;
	/* The compiler knows that it is in range, the verifier does not. */
	barrier_var(index);
	index &= GP_PYTHON_DEPTH - 1;
	at = walk->codes[index];
	id = walk->frames[index].code;
	sent = gp_mix(id, process);
	if (bpf_map_lookup_elem(&sent_python, &sent))
		return 1;
	if (!gp_python_read_code(python, walk, at)) {
		gp_count(python_unreadable);
		return 1;
	}
	table = gp_python_word(walk->code, python->line_table - python->object_type);
	if (bpf_probe_read_user(&bytes, sizeof(bytes), (void *)(table + python->bytes_size)))
		gp_count(python_unreadable);
	table += python->bytes_data;
	if (bytes <= GP_SMALL_TABLE_BYTES)
		is_sent = gp_send_code_of(gp_python_code_small);
	else
		is_sent = gp_send_code_of(gp_python_code_large);
	if (is_sent)
		bpf_map_update_elem(&sent_python, &sent, &one, BPF_ANY);
	return is_sent;
}

/* Sends the walk and its code objects; false if the ring is full. */
static __always_inline bool gp_send_python(struct gp_python *python, struct gp_python_walk *walk,
					   __u32 process, __u64 native, __u64 id)
{
	struct gp_python_stack *stack;

	for (__u32 i = 0; i < GP_PYTHON_DEPTH && i < walk->now.count; i++)
		if (!gp_send_python_code(python, walk, process, i))
			return false;
	stack = gp_reserve(stack_ring, GP_RING_STACKS, struct gp_python_stack,
			   gp_unread(stack_ring));
	if (!stack)
		return false;
	stack->type = GP_RECORD_PYTHON;
	stack->count = walk->now.count;
	stack->tgid = bpf_get_current_pid_tgid() >> 32;
	stack->id = id;
	stack->native = native;
	stack->process = process;
	stack->flags = walk->now.flags;
	/* It cannot fail. */
	bpf_probe_read_kernel(stack->frames, sizeof(stack->frames), walk->frames);
	bpf_ringbuf_submit(stack, gp_wake_now(GP_RING_STACKS));
	return true;
}

/* The id of the combined stack of `native` and the Python frames of the current thread;
 * `native` if it has none. */
__noinline __u64 gp_with_python(struct gp_walk *stack, struct gp_thread *thread, __u32 tid,
				__u64 native)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, one = 1;
	struct gp_python_known known;
	struct gp_python_walk *walk;
	struct gp_python *python;
	__u64 id, key;

	/* Without Python frames the maps do not exist. */
	if (!take_python || !stack || !thread)
		return native;
	walk = &stack->python;
	python = bpf_map_lookup_elem(&pythons, &tgid);
	if (!python)
		return native;
	id = gp_walk_python(python, walk, &thread->last, tid == tgid, native);
	if (id)
		return id;
	id = gp_mix(gp_identify_python(python, walk, native), walk->now.flags) | 1;
	if (gp_python_moved(walk))
		return native;
	if (!bpf_map_lookup_elem(&sent_python, &id)) {
		if (walk->now.flags & GP_PYTHON_CUT)
			gp_count(python_cut);
		if (walk->now.flags & GP_PYTHON_UNREADABLE)
			gp_count(python_unreadable);
		if (!gp_send_python(python, walk, thread->process, native, id)) {
			gp_count(python);
			return native;
		}
		/* Last, because an entry here means that the record is in the ring. */
		bpf_map_update_elem(&sent_python, &id, &one, BPF_ANY);
	}
	known.id = id;
	known.generation = walk->generation;
	key = walk->key;
	if (known.generation)
		bpf_map_update_elem(&known_python, &key, &known, BPF_ANY);
	return id;
}
