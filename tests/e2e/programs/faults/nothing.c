/* The shortest of processes. */
int main(void)
{
    return 0;
}
